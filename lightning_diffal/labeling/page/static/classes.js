// The class buttons, their number keys and the search.

import { element, find } from "./elements.js";

export class Classes {
  constructor(choose) {
    this.choose = choose;
    this.buttons = new Map();
    this.search = find("search");
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
  }

  /** Show these classes; those that are shown already keep their place and key. */
  update(names, mayAdd) {
    this.mayAdd = mayAdd;
    for (const name of names) {
      if (this.buttons.has(name)) continue;
      const number = this.buttons.size + 1;
      const key = number <= 9 ? element("kbd", {}, String(number)) : null;
      const button = element("button", { type: "button", "aria-keyshortcuts": key && number }, element("span", {}, name), key);
      button.addEventListener("click", () => this.choose({ verdict: "label", label: name }));
      this.buttons.set(name, button);
      find("classes").append(button);
    }
    find("choices").classList.toggle("many", this.buttons.size > 9 || mayAdd);
  }

  /** The answer of a number key, if there is such a class. */
  numbered(number) {
    const name = [...this.buttons.keys()][number - 1];
    return name === undefined ? null : { verdict: "label", label: name };
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
