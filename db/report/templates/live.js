"use strict";
// Polls for the regions that have changed and replaces them, keeping what the reader has opened, sorted and focused.
(() => {
  const POLL_INTERVAL_MS = 2000;
  const regions = [...document.querySelectorAll("[data-region]")];
  const status = document.querySelector("[role=status]");
  const FOCUSABLE = "a, button, select, summary, [tabindex]";
  let plotting = null;

  const save = (region) => {
    const details = [...region.querySelectorAll("details")];
    const table = region.querySelector(".sortable");
    const sorted = table && [...table.tHead.rows[0].cells].find((head) => head.ariaSort !== "none" && head.ariaSort);
    return {
      open: details.map((item) => (item.open ? item.id || details.indexOf(item) : null)).filter((key) => key !== null),
      sorted: sorted && [sorted.cellIndex, sorted.ariaSort],
      pressed: [...region.querySelectorAll(".legend [aria-pressed=false]")].map((button) => button.dataset.row),
      chosen: [...region.querySelectorAll("select")].map((select) => select.value),
      focused: [...region.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement),
      scrolled: [...region.querySelectorAll(".scroll, pre")].map((box) => [box.scrollLeft, box.scrollTop]),
    };
  };

  const restore = (region, saved) => {
    const details = [...region.querySelectorAll("details")];
    saved.open.forEach((key) => {
      const item = typeof key === "string" ? details.find((other) => other.id === key) : details[key];
      if (item) item.open = true;
    });
    const table = region.querySelector(".sortable");
    if (table && saved.sorted) dropbench.sort(table, ...saved.sorted);
    region.querySelectorAll("select").forEach((select, index) => {
      if (!select.querySelector(`[value="${saved.chosen[index]}"]`)) return;
      select.value = saved.chosen[index];
      select.dispatchEvent(new Event("change"));
    });
    saved.pressed.forEach((row) => region.querySelector(`.legend [data-row="${row}"]`)?.setAttribute("aria-pressed", "false"));
    region.querySelectorAll(".scroll, pre").forEach((box, index) => {
      if (saved.scrolled[index]) [box.scrollLeft, box.scrollTop] = saved.scrolled[index];
    });
    if (saved.focused >= 0) region.querySelectorAll(FOCUSABLE)[saved.focused]?.focus({ preventScroll: true });
  };

  // The script that draws the charts is large, so it is loaded with the first chart.
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

  const replace = (region, { digest, html }) => {
    const saved = save(region), height = region.getBoundingClientRect().height;
    region.style.minHeight = `${height}px`; // keeps the page below in place while charts are redrawn
    region.innerHTML = html;
    region.dataset.digest = digest;
    region.hidden = !html;
    dropbench.start(region);
    restore(region, saved);
    draw(region);
    setTimeout(() => (region.style.minHeight = ""), 1500);
  };

  const update = async () => {
    if (document.hidden) return;
    const have = regions.map((region) => `${region.dataset.region}:${region.dataset.digest}`).join(",");
    const address = new URL(location.href);
    address.hash = "";
    address.searchParams.set("have", have);
    try {
      const response = await fetch(address, { headers: { accept: "application/json" } });
      const changed = await response.json();
      if (!response.ok) throw new Error(changed.error);
      regions.forEach((region) => changed[region.dataset.region] && replace(region, changed[region.dataset.region]));
      showStatus("");
    } catch (error) {
      showStatus(error instanceof TypeError ? "The dashboard does not respond; this page shows its last state." : error.message);
    }
  };

  const showStatus = (text) => {
    if (status.textContent === text) return;
    status.textContent = text;
    status.classList.toggle("lost", Boolean(text));
  };

  const poll = async () => { await update(); setTimeout(poll, POLL_INTERVAL_MS); };
  draw(document);
  setTimeout(poll, POLL_INTERVAL_MS);
  document.addEventListener("visibilitychange", update);
})();
