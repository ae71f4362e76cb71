"use strict";
// Follows the database: asks for the regions that have changed, and puts them in place as they were left by the reader.
(() => {
  const EVERY = 2000;
  const regions = [...document.querySelectorAll("[data-region]")];
  const status = document.querySelector("[role=status]");
  let plotting = null;

  // What the reader has opened, sorted, hidden and focused, by its place in the region.
  const kept = (region) => {
    const details = [...region.querySelectorAll("details")];
    const table = region.querySelector(".sortable");
    const sorted = table && [...table.tHead.rows[0].cells].find((head) => head.ariaSort !== "none" && head.ariaSort);
    const focusable = [...region.querySelectorAll("a, button, summary, [tabindex]")];
    const scrolled = [...region.querySelectorAll(".scroll, pre")].map((one) => [one.scrollLeft, one.scrollTop]);
    return {
      open: details.map((one) => (one.open ? one.id || details.indexOf(one) : null)).filter((one) => one !== null),
      sorted: sorted && [sorted.cellIndex, sorted.ariaSort],
      pressed: [...region.querySelectorAll(".legend [aria-pressed=false]")].map((one) => one.dataset.row),
      focused: focusable.indexOf(document.activeElement),
      scrolled,
    };
  };

  const restore = (region, before) => {
    const details = [...region.querySelectorAll("details")];
    before.open.forEach((one) => {
      const found = typeof one === "string" ? details.find((other) => other.id === one) : details[one];
      if (found) found.open = true;
    });
    const table = region.querySelector(".sortable");
    if (table && before.sorted) dropbench.sort(table, ...before.sorted);
    before.pressed.forEach((row) => region.querySelector(`.legend [data-row="${row}"]`)?.setAttribute("aria-pressed", "false"));
    region.querySelectorAll(".scroll, pre").forEach((one, place) => {
      if (before.scrolled[place]) [one.scrollLeft, one.scrollTop] = before.scrolled[place];
    });
    if (before.focused >= 0) [...region.querySelectorAll("a, button, summary, [tabindex]")][before.focused]?.focus({ preventScroll: true });
  };

  // The plots' script is large: it is loaded with the first plot.
  const draw = async (root) => {
    if (!root.querySelector("figure.chart")) return;
    plotting ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = "/static/plotting.js";
      script.onload = resolve;
      script.onerror = reject;
      document.head.append(script);
    });
    await plotting;
    dropbench.start(root);
  };

  const place = (region, { digest, html }) => {
    const before = kept(region), height = region.getBoundingClientRect().height;
    region.style.minHeight = `${height}px`; // nothing below it jumps while plots are drawn again
    region.innerHTML = html;
    region.dataset.digest = digest;
    region.hidden = !html;
    restore(region, before);
    draw(region);
    setTimeout(() => (region.style.minHeight = ""), 1500);
  };

  const look = async () => {
    if (document.hidden) return;
    const have = regions.map((one) => `${one.dataset.region}:${one.dataset.digest}`).join(",");
    const address = new URL(location.href);
    address.hash = "";
    address.searchParams.set("have", have);
    try {
      const answer = await fetch(address, { headers: { accept: "application/json" } });
      const found = await answer.json();
      if (!answer.ok) throw new Error(found.error);
      regions.forEach((one) => found[one.dataset.region] && place(one, found[one.dataset.region]));
      tell("");
    } catch (error) {
      tell(error instanceof TypeError ? "The dashboard does not answer; shown is what it told last." : error.message);
    }
  };

  const tell = (line) => {
    if (status.textContent === line) return;
    status.textContent = line;
    status.classList.toggle("lost", Boolean(line));
  };

  const again = async () => { await look(); setTimeout(again, EVERY); };
  draw(document);
  setTimeout(again, EVERY);
  document.addEventListener("visibilitychange", look);
})();
