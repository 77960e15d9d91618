// Interface between the dispatcher and a front end (REST, dashboard, E2B or port proxy).

import type { Scope } from "../api/common.ts";
import type { Route } from "../api/route.ts";
import type { Identity } from "../store/tokens.ts";
import type { Answer } from "./answer.ts";
import type { Exchange } from "./exchange.ts";
import type { ErrorAnswer } from "./problem.ts";
import type { Target } from "./target.ts";

/** `identity` null: the route needs no authentication. `scope` null: the route needs no scope */
export type Admitted = { identity: Identity | null; scope: Scope | null };

/** One request in a front end */
export type Work = {
  /** route label for the metrics */
  readonly label: string;
  /** path for the audit log, without the query, which may contain secrets */
  readonly path: string;
  /** tag of the snapshot in the request */
  readonly snapshot: string | null;
  /** health check: served without a token and while the daemon stops; successes are not audited */
  readonly isProbe: boolean;
  /** id or name of the sandbox in the request; null: none, or not resolved yet */
  sandbox(): string | null;
  /** Runs before any byte of the body is read. Throws UNAUTHORIZED, RATE_LIMITED and others */
  admit(): Admitted;
  /** Runs the request and sends the response */
  serve(): Promise<void>;
  /** Error response in the front end's protocol */
  refuse(error: ErrorAnswer): Answer;
  /** a list that an operator may ask for across all projects */
  readonly acrossProjects?: boolean | undefined;
  /** HTTP statuses that differ from the default of an error code */
  readonly statusOf?: Route["statusOf"];
};

type TargetOf<K extends Target["to"]> = Extract<Target, { to: K }>;

export type FrontEnd<K extends Target["to"]> = {
  /** Whether the route accepts a protocol upgrade */
  mayUpgrade(target: TargetOf<K>): boolean;
  open(exchange: Exchange, target: TargetOf<K>): Work;
};

export type FrontEnds = { [K in Target["to"]]: FrontEnd<K> };
