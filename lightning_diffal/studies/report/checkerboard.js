for (const figure of document.querySelectorAll("figure[data-labels]")) {
  const labels = figure.dataset.labels.split(" ");
  const last = labels.length - 1;
  const [button, slider, output] = ["button", "input", "output"].map((name) => figure.querySelector(".player " + name));
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = null;
  const show = (fit) => {
    const status = `${labels[fit]} labels, fit ${fit + 1} of ${labels.length}`;
    slider.value = fit;
    slider.setAttribute("aria-valuetext", status);
    output.textContent = status;
    for (const group of figure.querySelectorAll("[data-fit]")) {
      const first = Number(group.dataset.fit);
      group.toggleAttribute("data-later", first > fit);
      group.toggleAttribute("data-now", first === fit && 0 < fit && fit < last);
    }
    for (const accuracy of figure.querySelectorAll("[data-accuracies]"))
      accuracy.textContent = accuracy.dataset.accuracies.split(" ")[fit];
  };
  const current = () => Number(slider.value);
  const updateButton = () => (button.textContent = reducedMotion.matches ? "Next" : timer === null ? "Play" : "Pause");
  const stop = () => {
    clearInterval(timer);
    timer = null;
    updateButton();
  };
  const step = () => {
    if (current() < last) show(current() + 1);
    if (current() === last) stop();
  };
  button.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (reducedMotion.matches) return show(current() < last ? current() + 1 : 0);
    if (current() === last) show(0);
    timer = setInterval(step, 500);
    updateButton();
  });
  slider.addEventListener("input", () => {
    stop();
    show(current());
  });
  reducedMotion.addEventListener("change", stop);
  stop();
  show(last);
  figure.querySelector(".player").hidden = false;
}
