import { element } from "./element";

// A filter over the glossary's table; without scripts the whole table is there.
const place = document.getElementById("glossary-search");
const rows = [...document.querySelectorAll<HTMLTableRowElement>("main tbody tr")];
if (place) {
  const input = element("input", { type: "search", id: "glossary-filter", autocomplete: "off" });
  const told = element("p", { class: "soft", role: "status" });
  const filter = (): void => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const row of rows) {
      row.hidden = !words.every((word) => (row.textContent ?? "").toLowerCase().includes(word));
      left += row.hidden ? 0 : 1;
    }
    told.textContent = words.length ? `${left} of ${rows.length} entries` : "";
  };
  input.addEventListener("input", filter);
  place.append(element("label", { for: "glossary-filter" }, "Find a name or a word "), input, told);
}
