// One large item at a time.

import { answerWords, element, find, guessWords, itemContent } from "./elements.js";
import * as server from "./server.js";

// One to look at, and one more whose picture is loaded meanwhile.
const HELD = 2;

export class Single {
  constructor(page) {
    this.page = page;
    this.seen = [];
    this.place = 0;
  }

  get item() {
    return this.seen[this.place] ?? null;
  }

  get selected() {
    return this.item ? [this.item] : [];
  }

  /** Items that are this page's, after those that were seen. */
  async load() {
    const { items } = await this.page.take(HELD);
    const waiting = items.filter((item) => !this.seen.some((one) => one.index === item.index && one.answer === null));
    this.seen = this.seen.filter((one) => one.answer !== null || items.some((item) => item.index === one.index));
    this.place = Math.min(this.place, this.seen.length);
    if (this.place === this.seen.length && waiting.length) this.seen.push(waiting.shift());
    for (const item of waiting) if (item.image) new Image().src = `items/${item.index}`;
  }

  async choose(answer) {
    const item = this.item;
    if (!item) return;
    await this.page.answer([{ item, answer }]);
    if (item.answer !== null) this.place += 1;
    await this.load();
    this.show();
  }

  /** Show an item again whose answer was taken back. */
  async revisit(items) {
    const place = this.seen.findIndex((one) => one.index === items[0].index);
    if (place >= 0) this.place = place;
    else this.seen.splice(this.place, 0, items[0]);
    this.show();
  }

  move(step) {
    const place = this.place + step;
    if (place < 0 || place >= this.seen.length) return;
    this.place = place;
    this.show();
  }

  key(event) {
    if (event.key === "ArrowLeft") this.move(-1);
    else if (event.key === "ArrowRight") this.move(1);
    else if (event.key === "Enter" && this.item && this.item.label) this.page.confirm();
    else return false;
    return true;
  }

  show() {
    const { item, page } = this;
    find("single").hidden = item === null;
    find("back").disabled = this.place === 0;
    find("forward").disabled = this.place >= this.seen.length - 1;
    page.finished(item === null);
    if (item === null) return;
    if (find("stage").dataset.index !== String(item.index)) {
      find("stage").dataset.index = item.index;
      find("stage").replaceChildren(itemContent(item));
      find("stage").scrollTop = 0;
    }
    find("item-name").textContent = item.name;
    find("about").replaceChildren(...this.about(item));
    page.classes.mark(item.answer, page.guess ? item.prediction ?? item.diffused : null);
    find("confirm").hidden = !item.label;
    find("confirm-words").textContent = item.label ? `Confirm “${item.label}”` : "";
    for (const [id, verdict] of [["skip", "skip"], ["cannot-tell", "cannot_tell"]]) {
      find(id).setAttribute("aria-pressed", String(item.answer !== null && item.answer.verdict === verdict));
    }
    this.showNeighbors();
  }

  about(item) {
    const parts = [];
    if (item.answer) parts.push(element("strong", {}, `Answered: ${answerWords(item.answer)}`));
    if (item.label) parts.push(element("span", {}, `Its label is “${item.label}”. Confirm or correct it.`));
    if (this.page.guess) parts.push(element("span", {}, guessWords(item) || "No guess for this item."));
    return parts;
  }

  async showNeighbors() {
    const panel = find("neighbors");
    const { item } = this;
    panel.hidden = !this.page.neighbors;
    if (panel.hidden || panel.dataset.index === String(item.index)) return;
    panel.dataset.index = item.index;
    panel.replaceChildren();
    const near = await server.neighbors(item.index).catch(() => []);
    if (panel.dataset.index !== String(item.index)) return;
    panel.replaceChildren(
      element("h2", {}, near.length ? "Nearest labeled" : "No labeled neighbors are known."),
      ...near.map((one) => element("figure", {}, itemContent(one), element("figcaption", {}, one.label))),
    );
  }
}
