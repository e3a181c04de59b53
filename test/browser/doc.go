// Package browser drives the page at / in a real browser, headless Chromium: chat, side by side, stop, edit and retry, loading
// and parking, the live view against /metrics, on a phone, in the dark and by keyboard alone. Texts that try to become markup
// or script are among the prompts and the answers.
//
// Every test fails when the page writes an error to its console, asks anybody but its own server, or scrolls sideways.
// OPENINFER_SCREENSHOTS=1 writes pictures of the page to docs/screenshots.
package browser
