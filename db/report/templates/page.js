"use strict";
// Sorts tables, opens the targets of links, and draws the charts. Without it everything but the charts is readable.
(() => {
  const value = (body, column) => {
    const cell = body.rows[0].cells[column];
    if (!column) return cell.textContent.trim().toLowerCase();
    return cell.dataset.sort === "" || cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
  };

  const sort = (table, column, direction) => {
    const bodies = [...table.tBodies];
    bodies.forEach((body, index) => (body.dataset.index ??= index));
    const factor = direction === "descending" ? -1 : 1;
    bodies.sort((first, second) => {
      const original = first.dataset.index - second.dataset.index;
      if (direction === "none") return original;
      const a = value(first, column), b = value(second, column);
      if (a === null || b === null) return (a === null) - (b === null) || original;
      return a < b ? -factor : a > b ? factor : original;
    });
    table.append(...bodies);
    [...table.tHead.rows[0].cells].forEach((head, index) =>
      head.setAttribute("aria-sort", index === column ? direction : "none"));
  };

  const next = (head, column) => {
    const order = column ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    return order[(order.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
  };

  const open = (hash, focus) => {
    const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    if (!target) return;
    for (let element = target; element; element = element.parentElement) if (element.tagName === "DETAILS") element.open = true;
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

  // Map the indices of rows to the colors of the style sheet, anywhere in a specification.
  const colored = (spec, palette) => {
    const walk = (part) => {
      if (!part || typeof part !== "object") return;
      const scale = part.color?.scale;
      if (scale) scale.range = scale.domain.map((row) => palette[row % palette.length]);
      Object.entries(part).forEach(([key, inner]) => key !== "data" && walk(inner));
    };
    walk(spec);
    return spec;
  };

  const drawn = new Map();
  const hidden = (figure) =>
    [...(figure.closest("section")?.querySelectorAll(".legend [aria-pressed=false]") ?? [])].map((button) => Number(button.dataset.row));

  const draw = async (figure) => {
    const plot = figure.querySelector(".plot");
    drawn.get(figure)?.finalize();
    drawn.set(figure, null);
    const palette = [...Array(8).keys()].map((number) => style(`--c${number}`));
    const spec = colored(JSON.parse(figure.querySelector("script").textContent), palette);
    spec.autosize = { type: "fit", contains: "padding" };
    const chart = await vegaEmbed(plot, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, config: config(),
      tooltip: { disableDefaultStyle: true },
    });
    plot.classList.add("drawn");
    drawn.set(figure, chart);
    const rows = hidden(figure);
    if (rows.length) chart.view.signal("hidden", rows).runAsync();
  };

  const observer = typeof IntersectionObserver === "function" && new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting) { observer.unobserve(target); draw(target); }
  }, { rootMargin: "300px" });

  const start = (root) => {
    if (typeof vegaEmbed !== "function") return;
    root.querySelectorAll("figure.chart").forEach((figure) => (observer ? observer.observe(figure) : draw(figure)));
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
  addEventListener("beforeprint", () => document.querySelectorAll("figure.chart").forEach((figure) => drawn.has(figure) || draw(figure)));
  start(document);
  open(location.hash, false);
  window.dropbench = { start, sort };
})();
