// Recipes that come with forkd, and builds with their steps.

import { useState } from "preact/hooks";
import { explain, forkd } from "../api.ts";
import { commandLine } from "../format.ts";
import { Card, Command, Link, Problem, useLoaded } from "../parts.tsx";
import { snapshotPath } from "../router.ts";
import { may } from "../session.ts";
import { Steps, useWork } from "./work.tsx";
import type { JSX } from "preact";
import type { RecipeInfo } from "forkd";

export function RecipesPage(): JSX.Element {
  const { value: recipes, error } = useLoaded(async (signal) => forkd.listRecipes({ signal }), []);
  return (
    <main class="page">
      <h1>Recipes</h1>
      <p class="dim">A recipe describes how to build a snapshot. Steps that did not change since an earlier build are not repeated.</p>
      <Problem text={error} />
      <div class="cards">
        {recipes?.map((recipe) => (
          <Recipe key={recipe.name} recipe={recipe} />
        ))}
      </div>
    </main>
  );
}

function Recipe({ recipe }: { recipe: RecipeInfo }): JSX.Element {
  const work = useWork();
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [made, setMade] = useState<string | null>(null);
  const build = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    setMade(null);
    try {
      const { snapshot } = await work.run(async (onProgress) => forkd.buildRecipe(recipe.name, { onProgress }));
      setMade(snapshot.tag);
    } catch (error) {
      setProblem(explain(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Card
      title={recipe.name}
      actions={
        may("admin") && (
          <button type="button" class="primary" disabled={isBusy} onClick={() => void build()}>
            {isBusy ? "Building…" : "Build"}
          </button>
        )
      }
    >
      <p>{recipe.description}</p>
      <Steps work={work} />
      <Problem text={problem} />
      {made !== null && (
        <p role="status">
          The snapshot <Link to={snapshotPath(made)}>{made}</Link> is ready.
        </p>
      )}
      <Command line={commandLine("build", recipe.name)} />
    </Card>
  );
}
