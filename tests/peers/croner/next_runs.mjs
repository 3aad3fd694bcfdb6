// Reads cases [[expression, zone, [start, …]], …] as JSON; writes the next run after each start,
// in milliseconds, null if there is none, or the text of the error of the expression.
import { readFileSync } from "node:fs";
import { Cron } from "croner";

function nextRun(cron, start) {
  try {
    return cron.nextRun(new Date(start))?.getTime() ?? null;
  } catch (error) {
    // It searches by recursion: some expressions that never match exhaust the stack.
    if (error instanceof RangeError && /call stack/.test(error.message)) return null;
    throw error;
  }
}

const results = JSON.parse(readFileSync(0, "utf8")).map(([expression, timezone, starts]) => {
  let cron;
  try {
    cron = new Cron(expression, { timezone });
  } catch (error) {
    return String(error.message);
  }
  return starts.map((start) => nextRun(cron, start));
});
process.stdout.write(JSON.stringify(results));
