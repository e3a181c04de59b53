// The colours of models: by their place in the server's list, from the style sheet, light or dark.

const count = 8;

// color is a model's colour, as something that style sheets understand.
export const color = index => index < 0 ? "var(--soft)" : `var(--series-${index % count + 1})`;

// value is what a variable of the style sheet stands for, for a canvas.
export const value = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const colorValue = index => index < 0 ? value("--soft") : value(`--series-${index % count + 1}`);

// onScheme calls f when the reader changes between light and dark.
export const onScheme = f => matchMedia("(prefers-color-scheme: dark)").addEventListener("change", f);
