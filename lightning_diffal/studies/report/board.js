for (const figure of document.querySelectorAll("figure[data-labels]")) {
  const labels = figure.dataset.labels.split(" ");
  const last = labels.length - 1;
  const [button, slider, output] = ["button", "input", "output"].map((name) => figure.querySelector(".player " + name));
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = null;
  const show = (fit) => {
    const words = `${labels[fit]} labels, fit ${fit + 1} of ${labels.length}`;
    slider.value = fit;
    slider.setAttribute("aria-valuetext", words);
    output.textContent = words;
    for (const group of figure.querySelectorAll("[data-fit]")) {
      const first = Number(group.dataset.fit);
      group.toggleAttribute("data-later", first > fit);
      group.toggleAttribute("data-now", first === fit && 0 < fit && fit < last);
    }
    for (const told of figure.querySelectorAll("[data-accuracies]"))
      told.textContent = told.dataset.accuracies.split(" ")[fit];
  };
  const shown = () => Number(slider.value);
  const name = () => (button.textContent = calm.matches ? "Next" : timer === null ? "Play" : "Pause");
  const stop = () => {
    clearInterval(timer);
    timer = null;
    name();
  };
  const step = () => {
    if (shown() < last) show(shown() + 1);
    if (shown() === last) stop();
  };
  button.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (calm.matches) return show(shown() < last ? shown() + 1 : 0);
    if (shown() === last) show(0);
    timer = setInterval(step, 500);
    name();
  });
  slider.addEventListener("input", () => {
    stop();
    show(shown());
  });
  calm.addEventListener("change", stop);
  stop();
  show(last);
  figure.querySelector(".player").hidden = false;
}
