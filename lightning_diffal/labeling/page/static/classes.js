// The class buttons, their number keys and the search.

import { element, find } from "./elements.js";

export class Classes {
  constructor(choose) {
    this.choose = choose;
    this.buttons = new Map();
    this.keys = new Map();
    this.search = find("search");
    this.search.addEventListener("input", () => this.filter());
    // The buttons keep their room while some are hidden, so that the item does not move.
    this.search.addEventListener("focus", () => (find("classes").style.minHeight = `${find("classes").offsetHeight}px`));
    this.search.addEventListener("blur", () => (find("classes").style.minHeight = ""));
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
  }

  /** Show these classes; those that are shown already keep their place and key. */
  update(names, mayAdd) {
    this.mayAdd = mayAdd;
    const fresh = names.filter((name) => !this.buttons.has(name));
    // Keys 1 to 9 for the first classes; but a class that is itself called "7" has the key 7.
    const digits = fresh.filter((name) => /^[0-9]$/.test(name) && !this.keys.has(name));
    const free = [..."123456789"].filter((key) => !this.keys.has(key) && !digits.includes(key));
    for (const name of fresh) {
      const key = digits.includes(name) ? name : free.shift() ?? null;
      if (key !== null) this.keys.set(key, name);
      const hint = key === null ? null : element("kbd", {}, key);
      const button = element("button", { type: "button", "aria-keyshortcuts": key }, element("span", {}, name), hint);
      button.addEventListener("click", () => this.choose({ verdict: "label", label: name }));
      this.buttons.set(name, button);
      find("classes").append(button);
    }
    find("choices").classList.toggle("many", this.buttons.size > 9 || mayAdd);
  }

  /** The answer of a number key, if there is such a class. */
  numbered(key) {
    return this.keys.has(key) ? { verdict: "label", label: this.keys.get(key) } : null;
  }

  /** Mark the class that an item has, and the one that is guessed. */
  mark(answer, guess) {
    for (const [name, button] of this.buttons) {
      const chosen = answer !== null && answer.verdict === "label" && answer.label === name;
      button.setAttribute("aria-pressed", String(chosen));
      button.classList.toggle("guessed", guess === name);
    }
  }

  matches() {
    const words = this.search.value.trim().toLowerCase();
    const found = [...this.buttons.keys()].filter((name) => name.toLowerCase().includes(words));
    // What begins with the words comes first.
    return found.sort((one, other) => other.toLowerCase().startsWith(words) - one.toLowerCase().startsWith(words));
  }

  filter() {
    const found = this.matches();
    for (const [name, button] of this.buttons) {
      button.hidden = !found.includes(name);
      button.classList.toggle("first", Boolean(this.search.value.trim()) && name === found[0]);
    }
    const fresh = this.mayAdd ? ` Enter adds “${this.search.value.trim()}”.` : "";
    if (!this.search.value.trim()) find("status").textContent = "";
    else find("status").textContent = found.length ? `${found.length} found. Enter: ${found[0]}` : `No such class.${fresh}`;
  }

  searchKey(event) {
    if (event.key === "Escape") this.leaveSearch();
    else if (event.key === "Enter") {
      const words = this.search.value.trim();
      const name = this.matches()[0] ?? (this.mayAdd ? words : undefined);
      if (words && name !== undefined) {
        this.leaveSearch();
        this.choose({ verdict: "label", label: name });
      }
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  leaveSearch() {
    this.search.value = "";
    this.filter();
    this.search.blur();
    find("main").focus({ preventScroll: true });
  }
}
