// Many items at once: mark them, then save them together. Marks are not saved until then, and the page says so.

import { answerWords, element, find, itemContent } from "./elements.js";

const CARDS = 24;

export class Grid {
  constructor(page) {
    this.page = page;
    this.items = [];
    this.marks = new Map();
    this.picked = new Set();
    this.focus = 0;
    this.anchor = 0;
    find("cards").addEventListener("click", (event) => this.click(event));
  }

  get selected() {
    return this.picked.size ? this.items.filter((item) => this.picked.has(item.index)) : [this.items[this.focus]].filter(Boolean);
  }

  async load() {
    const { items } = await this.page.take(CARDS);
    this.items = items;
    const here = new Set(items.map((item) => item.index));
    for (const index of this.marks.keys()) if (!here.has(index)) this.marks.delete(index);
    this.picked = new Set([...this.picked].filter((index) => here.has(index)));
    this.focus = Math.max(0, Math.min(this.focus, items.length - 1));
    this.fillGuesses();
    this.cards = items.map((item) => this.card(item));
    find("cards").replaceChildren(...this.cards);
  }

  /** With guesses shown, an item without a mark of its own has the model's. */
  fillGuesses() {
    for (const item of this.items) {
      const mark = this.marks.get(item.index);
      const guess = item.prediction ?? item.diffused;
      if (this.page.guess && !mark && guess) this.marks.set(item.index, { verdict: "label", label: guess, guessed: true });
      if (!this.page.guess && mark && mark.guessed) this.marks.delete(item.index);
    }
  }

  card(item) {
    return element(
      "li",
      { role: "option", "data-index": item.index, title: item.name },
      element("div", { class: "thumb" }, itemContent(item)),
      element("span", { class: "mark" }),
    );
  }

  /** Mark what is selected; the focus moves on to the next item without a mark. */
  async choose(answer) {
    for (const item of this.selected) this.marks.set(item.index, answer);
    const one = this.picked.size === 0;
    this.picked.clear();
    if (one) this.focus = Math.min(this.focus + 1, this.items.length - 1);
    this.show();
    find("status").textContent = `Marked ${answerWords(answer)}, not saved yet.`;
  }

  async save() {
    const pairs = this.items.filter((item) => this.marks.has(item.index)).map((item) => {
      const { verdict, label } = this.marks.get(item.index);
      return { item, answer: verdict === "label" ? { verdict, label } : { verdict } };
    });
    if (!pairs.length) return;
    await this.page.answer(pairs);
    this.focus = 0;
    await this.load();
    this.show();
  }

  async revisit() {
    await this.load();
    this.show();
  }

  get unsaved() {
    return [...this.marks.values()].some((mark) => !mark.guessed);
  }

  select(place, { extend = false, toggle = false } = {}) {
    if (extend) {
      const [first, last] = [Math.min(this.anchor, place), Math.max(this.anchor, place)];
      for (const item of this.items.slice(first, last + 1)) this.picked.add(item.index);
    } else {
      this.anchor = place;
      const { index } = this.items[place];
      if (toggle && !this.picked.delete(index)) this.picked.add(index);
    }
    this.focus = place;
    this.show();
  }

  click(event) {
    const card = event.target.closest("li");
    if (card) this.select(this.cards.indexOf(card), { extend: event.shiftKey, toggle: true });
  }

  key(event) {
    const across = Math.max(1, this.cards.filter((card) => card.offsetTop === this.cards[0].offsetTop).length);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across };
    if (event.key in steps) {
      const place = this.focus + steps[event.key];
      if (place >= 0 && place < this.items.length) this.select(place, { extend: event.shiftKey });
    } else if (event.key === " " && this.items.length) this.select(this.focus, { toggle: true });
    else if (event.key === "Enter") this.page.confirm();
    else if (event.key.toLowerCase() === "a") this.items.forEach((item) => this.picked.add(item.index));
    else if (event.key === "Escape") this.picked.clear();
    else return false;
    this.show();
    find("cards").children[this.focus]?.focus();
    return true;
  }

  show() {
    find("grid").hidden = this.items.length === 0;
    this.page.finished(this.items.length === 0);
    this.fillGuesses();
    this.cards.forEach((card, place) => {
      const item = this.items[place];
      const mark = this.marks.get(item.index) ?? null;
      card.tabIndex = place === this.focus ? 0 : -1;
      card.setAttribute("aria-selected", String(this.picked.has(item.index)));
      card.classList.toggle("guessed", Boolean(mark && mark.guessed));
      const words = mark ? answerWords(mark) : item.label ? `label: ${item.label}` : "";
      card.lastElementChild.textContent = words;
      card.setAttribute("aria-label", `${item.name}${words ? `, ${words}` : ""}${mark ? ", not saved" : ""}`);
    });
    find("confirm").hidden = false;
    find("confirm").disabled = this.marks.size === 0;
    find("confirm-words").textContent = `Save ${this.marks.size || ""}`;
    this.page.classes.mark(null, null);
  }
}
