import { element } from "../element";

/** Tables marked `data-filter` get a text filter over some columns and a least value of one; without scripts all rows are there. */
export function startFilters(): void {
  for (const place of document.querySelectorAll<HTMLElement>("[data-filter]")) start(place);
}

function start(place: HTMLElement): void {
  const name = place.dataset.filter ?? "";
  const columns = (place.dataset.filterText ?? "").split(",").map(Number);
  const score = Number(place.dataset.filterNumber ?? "0");
  const rows = [...place.querySelectorAll<HTMLTableRowElement>("tbody tr")];
  const words = element("input", { type: "search", id: `filter-${name}`, autocomplete: "off" });
  const low = element("input", { type: "number", id: `least-${name}`, min: "0", max: "1", step: "0.01", value: "0" });
  const high = element("input", { type: "number", id: `most-${name}`, min: "0", max: "1", step: "0.01", value: "1" });
  const told = element("p", { class: "soft", role: "status" });
  const text = (row: HTMLTableRowElement, column: number): string => row.cells[column]?.textContent ?? "";
  const apply = (): void => {
    const wanted = words.value.toLowerCase();
    let left = 0;
    for (const row of rows) {
      const value = Number(text(row, score));
      const fits = columns.some((column) => text(row, column).toLowerCase().includes(wanted));
      row.hidden = !(fits && value >= Number(low.value) && value <= Number(high.value));
      left += row.hidden ? 0 : 1;
    }
    told.textContent = `${left} of ${rows.length} shown`;
  };
  for (const input of [words, low, high]) input.addEventListener("input", apply);
  place.before(
    element(
      "div",
      { class: "controls" },
      element("label", { for: words.id }, "Source ", words),
      element("label", { for: low.id }, "Score from ", low),
      element("label", { for: high.id }, "to ", high),
    ),
    told,
  );
}
