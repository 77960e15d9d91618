// A short round trip: load the cities, measure a random order, then go one of three ways.

import type { Call, Script, Turn } from "../script.ts";

const LOAD = `
import json, math, random
cities = json.load(open("/srv/cities.json"))
def length(tour):
    return sum(math.dist(cities[tour[i - 1]], cities[tour[i]]) for i in range(len(tour)))
len(cities)
`;

const MEASURE = `
tour = random.sample(range(len(cities)), len(cities))
baseline = length(tour)
open("/srv/notes.txt", "w").write(f"random order: {baseline:.1f}\\n")
round(baseline, 1)
`;

const NEAREST = `
left = set(range(1, len(cities)))
tour = [0]
while left:
    tour.append(min(left, key=lambda city: math.dist(cities[tour[-1]], cities[city])))
    left.remove(tour[-1])
`;

const TWO_OPT = `
better = True
while better:
    better = False
    for i in range(1, len(tour)):
        for j in range(i + 1, len(tour) + 1):
            a, b, c, d = (cities[tour[k % len(tour)]] for k in (i - 1, i, j - 1, j))
            if math.dist(a, c) + math.dist(b, d) < math.dist(a, b) + math.dist(c, d) - 1e-9:
                tour[i:j] = tour[i:j][::-1]
                better = True
`;

const ANNEAL = `
heat, now = 50.0, length(tour)
while heat > 0.5:
    i, j = sorted(random.sample(range(len(tour)), 2))
    tried = tour[:i] + tour[i:j][::-1] + tour[j:]
    then = length(tried)
    if then < now or random.random() < math.exp((now - then) / heat):
        tour, now = tried, then
    heat *= 0.995
`;

/** What the tools are called, and what says which way to go */
type Wording = { run: string; branch: Call; ways: [nearest: string, twoOpt: string, anneal: string] };

export const tour = tourScript({
  run: "run_python",
  branch: { tool: "branch", arguments: { ways: ["nearest neighbour", "2-opt", "simulated annealing"] } },
  ways: ["nearest neighbour", "2-opt", "simulated annealing"],
});

/** The same where the machine is forkd's MCP server */
export const tourMcp = tourScript({
  run: "eval_code",
  branch: { tool: "fork_sandbox", arguments: { n: 3 } },
  ways: ["you are copy 0", "you are copy 1", "you are copy 2"],
});

function tourScript({ run, branch, ways }: Wording): Script {
  const python = (say: string, code: string): Turn => ({ say, call: { tool: run, arguments: { code: code.trim() } } });
  const way = (name: string, code: string): Turn[] => [
    python(
      `My way is ${name}.`,
      `${code.trim()}\nopen("/srv/notes.txt", "a").write(f"${name}: {length(tour):.1f}\\n")\nround(length(tour), 1)`,
    ),
    { say: `With ${name} the round trip is {result} long.` },
  ];
  return {
    prepare: [
      python("I load the cities.", LOAD),
      python("I measure a random order, to compare with.", MEASURE),
      { say: "Three ways are worth a try. I branch.", call: branch },
      { say: "Everything is ready: a random order is {result} long." },
    ],
    ways: {
      [ways[0]]: way("nearest neighbour", NEAREST),
      [ways[1]]: way("2-opt", TWO_OPT),
      [ways[2]]: way("simulated annealing", ANNEAL),
    },
  };
}
