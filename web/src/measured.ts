import { element } from "./element";
import { shown } from "./numbers";

/** A number that says what it is: all its digits as its value, its meaning as hover text. */
export function measured(value: number, meaning: string, written = shown(value)): HTMLElement {
  return element("data", { value: String(value), title: meaning, class: "n" }, written);
}

/** Put a sentence of words and numbers into a place. */
export function tell(place: HTMLElement, ...parts: (string | Node)[]): void {
  place.replaceChildren(...element("span", {}, ...parts).childNodes);
}
