// Every page: hover text for keyboard and touch, live figures, live regions.
import "uplot/dist/uPlot.min.css";
import "./site.css";
import { hoverText } from "./hover";

hoverText();

const figures = document.querySelectorAll<HTMLElement>("figure[data-figure]");
if (figures.length > 0) void import("./figures").then((module) => module.enliven(figures));
if (document.body.dataset.live) void import("./live").then((module) => module.listen());
