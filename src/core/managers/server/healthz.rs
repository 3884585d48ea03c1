//! `/healthz`: the checks of a port, and how their verdicts read.
//!
//! Upstream: apiserver's pkg/server/healthz (v1.36). Pure.
//! Upstream's fourth check of 10250, `device-plugin`, comes with the device plugins: until then nothing claims that
//! they are well.

use super::{not_found, text};
use crate::effect::Reply;
use crate::event::{Listener, Request};
use crate::facts::Facts;
use crate::time::Mono;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use serde::{Deserialize, Serialize};

struct Check {
    name: &'static str,
    /// Why it fails.
    problem: Option<&'static str>,
}

/// How a check came out so far, for `/metrics/slis`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    last_good: bool,
    good: u64,
    bad: u64,
}

pub type Tallies = BTreeMap<String, Tally>;

pub(super) fn answer(facts: &Facts, now: Mono, request: &Request, tallies: &mut Tallies) -> Reply {
    let check = |name, problem| Check { name, problem };
    // 10248 is for whoever restarts the agent, which would not bring a runtime back: it says only that somebody is here.
    if request.listener == Listener::Healthz {
        let checks = [check("ping", None)];
        count(request, &checks, tallies);
        return verdict(request, &checks);
    }
    let checks =
        [check("ping", None), check("log", None), check("syncloop", facts.sync_loop_problem(now))];
    count(request, &checks, tallies);
    verdict(request, &checks)
}

fn only(request: &Request) -> Option<&str> {
    request.path.strip_prefix("/healthz/").filter(|name| !name.is_empty())
}

fn excludes(request: &Request, name: &str) -> bool {
    request.query.iter().any(|(key, value)| key == "exclude" && value == name)
}

fn count(request: &Request, checks: &[Check], tallies: &mut Tallies) {
    for check in checks {
        let asked = match only(request) {
            Some(name) => name == check.name,
            None => !excludes(request, check.name),
        };
        if asked {
            let tally = tallies.entry(check.name.into()).or_default();
            tally.last_good = check.problem.is_none();
            let count = if tally.last_good { &mut tally.good } else { &mut tally.bad };
            *count += 1;
        }
    }
}

/// `/metrics/slis`.
///
/// Upstream: component-base/metrics/prometheus/slis (v1.36).
pub(super) fn slis(tallies: &Tallies) -> String {
    let mut page = String::from(
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
         # TYPE kubernetes_healthcheck gauge\n",
    );
    for (name, tally) in tallies {
        let good = u8::from(tally.last_good);
        let _ = writeln!(page, "kubernetes_healthcheck{{name=\"{name}\",type=\"healthz\"}} {good}");
    }
    page.push_str(
        "# HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n\
         # TYPE kubernetes_healthchecks_total counter\n",
    );
    for (name, tally) in tallies {
        for (status, count) in [("error", tally.bad), ("success", tally.good)] {
            if count > 0 {
                let labels = format!("name=\"{name}\",status=\"{status}\",type=\"healthz\"");
                let _ = writeln!(page, "kubernetes_healthchecks_total{{{labels}}} {count}");
            }
        }
    }
    page
}

/// `/healthz` judges all checks, `/healthz/NAME` one; `?exclude=` leaves one out, `?verbose` lists them.
fn verdict(request: &Request, checks: &[Check]) -> Reply {
    if let Some(name) = only(request) {
        return match checks.iter().find(|check| check.name == name) {
            None => not_found(&request.path),
            Some(Check { problem: None, .. }) => text(200, "ok"),
            Some(Check { problem: Some(problem), .. }) => {
                text(500, format!("internal server error: {problem}\n"))
            }
        };
    }
    let mut lines = String::new();
    let mut failed = false;
    for Check { name, problem } in checks {
        let (sign, said) = match problem {
            _ if excludes(request, name) => ('+', "excluded: ok"),
            None => ('+', "ok"),
            Some(_) => ('-', "failed: reason withheld"),
        };
        failed |= sign == '-';
        let _ = writeln!(lines, "[{sign}]{name} {said}");
    }
    if failed {
        lines.push_str("healthz check failed\n");
        return text(500, lines);
    }
    if !request.query.iter().any(|(key, _)| key == "verbose") {
        return text(200, "ok");
    }
    lines.push_str("healthz check passed\n");
    text(200, lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RequestId;
    use bytes::Bytes;

    #[test]
    fn what_is_asked_and_what_is_said() {
        let check = |target: &str, problem, want: (u16, &str)| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let query = query.split('&').filter(|pair| !pair.is_empty());
            let query = query.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            let request = Request {
                id: RequestId(1),
                listener: Listener::Secure,
                loopback: true,
                certificate: None,
                bearer: None,
                upgrade: false,
                body: Bytes::new(),
                method: "GET".into(),
                path: path.into(),
                query: query.map(|(k, v)| (k.into(), v.into())).collect(),
            };
            let checks =
                [Check { name: "ping", problem: None }, Check { name: "syncloop", problem }];
            let reply = verdict(&request, &checks);
            assert_eq!(
                (reply.status, core::str::from_utf8(&reply.body).unwrap()),
                want,
                "{target}"
            );
        };
        let late = Some("too late");
        let failed = "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
        check("/healthz", None, (200, "ok"));
        check("/healthz/", None, (200, "ok"));
        check(
            "/healthz?verbose",
            None,
            (200, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n"),
        );
        check("/healthz/syncloop", None, (200, "ok"));
        check("/healthz/other", None, (404, "404 page not found\n"));
        check("/healthz", late, (500, failed));
        check("/healthz?verbose", late, (500, failed));
        check("/healthz/ping", late, (200, "ok"));
        check("/healthz/syncloop", late, (500, "internal server error: too late\n"));
        check("/healthz?exclude=syncloop", late, (200, "ok"));
        let excluded = "[+]ping ok\n[+]syncloop excluded: ok\nhealthz check passed\n";
        check("/healthz?exclude=syncloop&verbose", late, (200, excluded));
        check("/healthz?exclude=other", late, (500, failed));
    }
}
