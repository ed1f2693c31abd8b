import { startFilters } from "./atlas/filter";
import { startSearch } from "./atlas/search";
import { startTexts } from "./atlas/texts";
import { startWhatIf } from "./atlas/what-if";

const search = document.getElementById("topic-search");
if (search) startSearch(search);
const whatIf = document.getElementById("what-if");
if (whatIf) void startWhatIf(whatIf);
startTexts();
startFilters();
