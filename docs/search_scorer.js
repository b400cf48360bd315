// Sphinx's scores, with tasks in front, and long pages that have every word behind.
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    if (/^(howto|tutorial)/.test(page)) return score + 4;
    return kind === "text" && /^(benchmarks|comparison|reference\/.*-codes)$/.test(page) ? score - 8 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
