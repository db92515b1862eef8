// Making elements. Data of the user only ever becomes text or an attribute, never markup.

export const find = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A picture, or a text. */
export function itemContent(item) {
  if (!item.image) return element("p", { class: "text", dir: "auto" }, item.text);
  const picture = element("img", { src: `items/${item.index}`, alt: item.name, draggable: "false" });
  const instead = () => element("p", { class: "text", dir: "auto" }, item.text ?? `${item.name} cannot be shown.`);
  picture.addEventListener("error", () => picture.replaceWith(instead()));
  return picture;
}

export const answerWords = (answer) =>
  answer === null ? "no answer" : answer.verdict === "label" ? answer.label : answer.verdict === "skip" ? "skipped" : "can’t tell";

const REASONS = { explore: "explores: no label is near", refine: "refines: between classes" };

/** What the model and the graph think of an item; empty if nothing is known. */
export function guessWords(item) {
  const sure = item.probability === null ? "" : ` ${Math.round(100 * item.probability)}%`;
  const parts = [
    item.prediction && `Model: ${item.prediction}${sure}`,
    item.diffused && `Graph: ${item.diffused}`,
    REASONS[item.reason],
  ];
  return parts.filter(Boolean).join(" · ");
}
