// Package pages opens the HTML reports in a real browser, headless Chromium: no line in its console, every series of every
// chart found among the pixels, no request to anywhere, nothing wider than the screen; light on a desktop and dark on a phone.
//
// Reports are made from small fixtures and by the plan and fleet commands' own code, and those committed to docs are opened, too.
// OPENINFER_SCREENSHOTS=1 writes pictures of some to docs/screenshots.
package pages
