// The page: progress, keys, and which of the two views is shown.

import { Classes } from "./classes.js";
import { answerWords, find } from "./elements.js";
import { Grid } from "./grid.js";
import * as server from "./server.js";
import { Single } from "./single.js";

const RENEW_MS = 40_000;
const LOOK_AGAIN_MS = 3_000;

class Page {
  constructor() {
    this.classes = new Classes((answer) => this.run(() => this.view.choose(answer)));
    this.views = { single: new Single(this), grid: new Grid(this) };
    this.view = this.views.single;
    this.guess = false;
    this.neighbors = false;
    this.undoable = [];
    this.busy = false;
  }

  /** Do one thing at a time: a key that is pressed meanwhile is not an answer to what comes next. */
  async run(work) {
    if (this.busy) return;
    this.setBusy(true);
    try {
      await work();
      this.alert("");
    } catch (error) {
      this.alert(`${error.message}. What this page said to be saved is saved.`);
    } finally {
      this.setBusy(false);
      find("undo").disabled = this.undoable.length === 0;
    }
  }

  setBusy(busy) {
    this.busy = busy;
    find("main").setAttribute("aria-busy", String(busy));
  }

  alert(words) {
    find("alert").hidden = !words;
    find("alert").textContent = words;
  }

  async take(count) {
    const reply = await server.take(count);
    this.progress(reply.progress);
    this.classes.update(reply.classes, reply.may_add);
    // In an audit every item has a label, which is confirmed or corrected.
    find("skip").hidden = find("cannot-tell").hidden = reply.audit;
    return reply;
  }

  /** Store answers to items and say so. Those that somebody else has answered meanwhile keep the other answer. */
  async store(pairs, say = null) {
    const said = pairs.map(({ item, answer }) => ({ index: item.index, answer, was: item.answer }));
    const { saved, refused, progress } = await server.store(said);
    const items = new Map(pairs.map(({ item }) => [item.index, item]));
    const done = saved.map(({ index, answer }) => {
      const item = items.get(index);
      const before = item.answer;
      item.answer = answer;
      return { item, answer: before };
    });
    for (const { index, answer } of refused) if (answer !== undefined) items.get(index).answer = answer;
    this.progress(progress);
    const problems = refused.map(({ index, reason }) => `${items.get(index).name}: ${reason}.`);
    const words = done.length ? say ?? `Saved ${spoken(done.map(({ item }) => item.answer))}.` : "";
    find("status").textContent = [words, ...problems].join(" ");
    return done;
  }

  async answer(pairs) {
    const done = await this.store(pairs);
    if (done.length) this.undoable.push(done);
  }

  async undo() {
    if (!this.undoable.length) return;
    const last = this.undoable[this.undoable.length - 1];
    await this.store(last, `Taken back: ${spoken(last.map(({ item }) => item.answer))}.`);
    this.undoable.pop();
    await this.view.revisit(last.map(({ item }) => item));
  }

  progress({ answered, total, seconds_left: seconds, round }) {
    Object.assign(find("progress"), { max: Math.max(total, 1), value: answered });
    find("answered").textContent = `${answered} of ${total}`;
    find("time-left").textContent = seconds === null || answered === total ? "" : ` · ${duration(seconds)} left`;
    document.title = `${answered} of ${total} · labels${round === null ? "" : ` of round ${round}`}`;
    this.left = total - answered;
  }

  /** Nothing to show: all is answered, or others have what is left. Look again from time to time. */
  finished(now) {
    find("finished").hidden = !now;
    find("choices").inert = now;
    find("cannot-tell").disabled = find("skip").disabled = now;
    if (now) find("confirm").hidden = true;
    clearTimeout(this.looking);
    if (!now) return;
    find("finished-title").textContent = this.left ? "The rest is open elsewhere" : "All answered";
    find("finished-words").textContent = this.left
      ? `${this.left} items are open in other tabs. They will appear here if they are not answered there.`
      : "Every answer is saved. Start your script again to continue; a waiting script continues by itself. The next questions will appear here.";
    this.looking = setTimeout(() => this.run(() => this.reload()), LOOK_AGAIN_MS);
  }

  async reload() {
    await this.view.load();
    this.view.show();
  }

  toggle(name) {
    if (name === "grid") return this.run(() => this.switchView());
    this[name] = !this[name];
    find(`toggle-${name}`).setAttribute("aria-pressed", String(this[name]));
    this.view.show();
    return null;
  }

  async switchView() {
    const grid = this.view === this.views.single;
    this.view = grid ? this.views.grid : this.views.single;
    find("toggle-grid").setAttribute("aria-pressed", String(grid));
    find("toggle-neighbors").disabled = find("back").hidden = find("forward").hidden = grid;
    find("confirm").disabled = false;
    find("status").textContent = "";
    await this.view.load();
    for (const name of ["single", "grid"]) find(name).hidden = true;
    this.view.show();
    if (grid) find("cards").children[this.view.focus]?.focus();
    else find("main").focus();
  }

  confirm() {
    const { item } = this.view;
    return this.run(() => (this.view === this.views.grid ? this.view.save() : this.view.choose({ verdict: "label", label: item.label })));
  }

  key(event) {
    if (find("help").open || event.target === find("search")) return;
    const undo = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    if ((event.ctrlKey || event.metaKey || event.altKey) && !undo) return;
    // A button that has the focus takes these itself.
    if (event.target.tagName === "BUTTON" && ["Enter", " "].includes(event.key)) return;
    const number = /^[0-9]$/.test(event.key) ? event.key : (/^(?:Digit|Numpad)([0-9])$/.exec(event.code) ?? [])[1];
    const actions = {
      u: () => this.run(() => this.undo()),
      s: () => this.run(() => this.view.choose({ verdict: "skip" })),
      c: () => this.run(() => this.view.choose({ verdict: "cannot_tell" })),
      g: () => this.toggle("guess"),
      n: () => this.view === this.views.single && this.toggle("neighbors"),
      v: () => this.toggle("grid"),
      "?": () => find("help").showModal(),
      "/": () => find("search").focus(),
    };
    const action = undo ? actions.u : actions[event.key.toLowerCase()];
    if (event.repeat && (number || action)) return;
    if (action) action();
    else if (number && !event.shiftKey) this.number(number);
    else if (!this.view.key(event)) return;
    event.preventDefault();
  }

  number(number) {
    const answer = this.classes.numbered(number);
    if (answer) this.run(() => this.view.choose(answer));
    else find("status").textContent = `No class has the key ${number}.`;
  }

  async start() {
    document.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["guess", "neighbors", "grid"]) find(`toggle-${name}`).addEventListener("click", () => this.toggle(name));
    find("open-help").addEventListener("click", () => find("help").showModal());
    find("close-help").addEventListener("click", () => find("help").close());
    find("back").addEventListener("click", () => this.view.move(-1));
    find("forward").addEventListener("click", () => this.view.move(1));
    find("undo").addEventListener("click", () => this.run(() => this.undo()));
    find("confirm").addEventListener("click", () => this.confirm());
    find("skip").addEventListener("click", () => this.run(() => this.view.choose({ verdict: "skip" })));
    find("cannot-tell").addEventListener("click", () => this.run(() => this.view.choose({ verdict: "cannot_tell" })));
    setInterval(() => server.renew().catch(() => {}), RENEW_MS);
    window.addEventListener("pagehide", () => server.release());
    window.addEventListener("pageshow", (event) => event.persisted && this.run(() => this.reload()));
    window.addEventListener("beforeunload", (event) => this.view === this.views.grid && this.view.unsaved && event.preventDefault());
    await this.run(() => this.reload());
    find("main").focus();
  }
}

const spoken = (answers) => (answers.length === 1 ? `“${answerWords(answers[0])}”` : `${answers.length} answers`);

function duration(seconds) {
  if (seconds < 60) return "less than a minute";
  return seconds < 5400 ? `about ${Math.round(seconds / 60)} min` : `about ${(seconds / 3600).toFixed(1)} h`;
}

new Page().start();
