import { element } from "./element";

const TARGET = "[title], [data-words]";

/** What a cell's number is: what its column's head says, else what its whole table is about. */
function wordsOfCell(cell: HTMLTableCellElement): string {
  const table = cell.closest("table");
  const head = table?.tHead?.rows[0]?.cells[cell.cellIndex];
  const named = head?.title ? head : head?.querySelector<HTMLElement>(TARGET);
  return named?.title || named?.dataset.words || table?.dataset.meaning || "";
}

/** Shows `title` texts in a box of the page: on hover, on focus, on touch; Escape closes it, and it can be hovered itself. */
export function hoverText(): void {
  const box = element("div", { id: "words", role: "tooltip", hidden: true });
  document.body.append(box);
  let shown: HTMLElement | null = null;

  const hide = (): void => {
    if (!shown) return;
    if (shown.dataset.words) shown.title = shown.dataset.words;
    delete shown.dataset.words;
    shown.removeAttribute("aria-describedby");
    shown = null;
    box.hidden = true;
  };
  const show = (target: HTMLElement): void => {
    if (target === shown) return;
    hide();
    const words = target.title || (target instanceof HTMLTableCellElement ? wordsOfCell(target) : "");
    if (!words) return;
    if (target.title) {
      target.dataset.words = words;
      target.removeAttribute("title");
    }
    target.setAttribute("aria-describedby", "words");
    shown = target;
    box.textContent = words;
    box.hidden = false;
    const place = target.getBoundingClientRect();
    const left = Math.min(Math.max(8, place.left), Math.max(8, innerWidth - box.offsetWidth - 8));
    const below = place.bottom + box.offsetHeight + 8 < innerHeight;
    box.style.left = `${left}px`;
    box.style.top = `${below ? place.bottom + 4 : Math.max(4, place.top - box.offsetHeight - 4)}px`;
  };
  const targetOf = (event: Event): HTMLElement | null =>
    event.target instanceof Element ? event.target.closest<HTMLElement>("main [title], main [data-words], main td") : null;

  document.addEventListener("pointerover", (event) => {
    const target = targetOf(event);
    if (target) show(target);
    else if (!(event.target instanceof Node && box.contains(event.target))) hide();
  });
  document.addEventListener("focusin", (event) => {
    const target = targetOf(event);
    if (target) show(target);
    else hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("scroll", hide, { passive: true, capture: true });
}
