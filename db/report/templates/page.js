"use strict";
// Sorting, opening what a link points to, and drawing the plots. Everything is readable without it but the plots.
(() => {
  const value = (body, column) => {
    const cell = body.rows[0].cells[column];
    if (!column) return cell.textContent.trim().toLowerCase();
    return cell.dataset.sort === "" || cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
  };

  const sort = (table, column, direction) => {
    const bodies = [...table.tBodies];
    bodies.forEach((body, place) => (body.dataset.place ??= place));
    const factor = direction === "descending" ? -1 : 1;
    bodies.sort((one, other) => {
      if (direction === "none") return one.dataset.place - other.dataset.place;
      const a = value(one, column), b = value(other, column);
      if (a === null || b === null) return (a === null) - (b === null) || one.dataset.place - other.dataset.place;
      return a < b ? -factor : a > b ? factor : one.dataset.place - other.dataset.place;
    });
    table.append(...bodies);
    [...table.tHead.rows[0].cells].forEach((head, place) =>
      head.setAttribute("aria-sort", place === column ? direction : "none"));
  };

  const next = (head, column) => {
    const order = column ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
  };

  const open = (hash, focus) => {
    const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    if (!target) return;
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
    const summary = target.tagName === "DETAILS" && target.querySelector("summary");
    if (focus && summary) summary.focus({ preventScroll: true });
    target.scrollIntoView({ block: "start" });
  };

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const config = () => {
    const quiet = style("--quiet"), line = style("--line"), font = getComputedStyle(document.body).fontFamily;
    const text = { labelColor: quiet, titleColor: quiet, labelFont: font, titleFont: font, titleFontWeight: "normal" };
    return {
      background: null,
      font,
      view: { stroke: null },
      axis: { ...text, gridColor: line, domain: false, tickColor: line, labelFontSize: 11, titleFontSize: 12,
        gridOpacity: 0.8, tickSize: 3, labelPadding: 4 },
      axisX: { grid: false, domain: true, domainColor: line, tickCount: 5, labelOverlap: "greedy", labelSeparation: 4 },
      axisY: { tickCount: 5 },
    };
  };

  // The numbers of rows get the colours of the style sheet, wherever in a specification they stand.
  const coloured = (spec, palette) => {
    const walk = (part) => {
      if (!part || typeof part !== "object") return;
      const scale = part.color?.scale;
      if (scale) scale.range = scale.domain.map((number) => palette[number % palette.length]);
      Object.entries(part).forEach(([key, inner]) => key !== "data" && walk(inner));
    };
    walk(spec);
    return spec;
  };

  const drawn = new Map();
  const hidden = (figure) =>
    [...(figure.closest("section")?.querySelectorAll(".legend [aria-pressed=false]") ?? [])].map((b) => Number(b.dataset.row));

  const draw = async (figure) => {
    const plot = figure.querySelector(".plot");
    drawn.get(figure)?.finalize();
    drawn.set(figure, null);
    const palette = [...Array(8).keys()].map((number) => style(`--c${number}`));
    const spec = coloured(JSON.parse(figure.querySelector("script").textContent), palette);
    spec.autosize = { type: "fit", contains: "padding" };
    const made = await vegaEmbed(plot, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, config: config(),
      tooltip: { disableDefaultStyle: true },
    });
    plot.classList.add("drawn");
    drawn.set(figure, made);
    const rows = hidden(figure);
    if (rows.length) made.view.signal("hidden", rows).runAsync();
  };

  const seen = typeof IntersectionObserver === "function" && new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) { seen.unobserve(target); draw(target); }
  }, { rootMargin: "300px" });

  const start = (root) => {
    if (typeof vegaEmbed !== "function") return;
    root.querySelectorAll("figure.chart").forEach((figure) => (seen ? seen.observe(figure) : draw(figure)));
  };

  const redraw = () => [...drawn.keys()].forEach((figure) => (figure.isConnected ? draw(figure) : drawn.delete(figure)));

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link) { setTimeout(() => open(link.hash, true)); return; }
    const head = event.target.closest(".sortable thead th");
    if (head && event.target.closest("button")) {
      sort(head.closest("table"), head.cellIndex, next(head, head.cellIndex));
      return;
    }
    const row = event.target.closest(".legend button");
    if (row) {
      row.setAttribute("aria-pressed", row.getAttribute("aria-pressed") === "true" ? "false" : "true");
      row.closest("section").querySelectorAll("figure.chart").forEach((figure) =>
        drawn.get(figure)?.view.signal("hidden", hidden(figure)).runAsync());
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("hashchange", () => open(location.hash, true));
  addEventListener("beforeprint", () => document.querySelectorAll("figure.chart").forEach((f) => drawn.has(f) || draw(f)));
  start(document);
  open(location.hash, false);
  window.dropbench = { start, sort };
})();
