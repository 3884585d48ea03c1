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
use alloc::format;
use alloc::string::String;
use core::fmt::Write;

struct Check {
    name: &'static str,
    /// Why it fails.
    problem: Option<&'static str>,
}

pub(super) fn answer(facts: &Facts, now: Mono, request: &Request) -> Reply {
    let check = |name, problem| Check { name, problem };
    // 10248 is for whoever restarts the agent, which would not bring a runtime back: it says only that somebody is here.
    if request.listener == Listener::Healthz {
        return verdict(request, &[check("ping", None)]);
    }
    let checks =
        [check("ping", None), check("log", None), check("syncloop", facts.sync_loop_problem(now))];
    verdict(request, &checks)
}

/// `/healthz` judges all checks, `/healthz/NAME` one; `?exclude=` leaves one out, `?verbose` lists them.
fn verdict(request: &Request, checks: &[Check]) -> Reply {
    let one = request.path.strip_prefix("/healthz/").filter(|name| !name.is_empty());
    if let Some(name) = one {
        return match checks.iter().find(|check| check.name == name) {
            None => not_found(&request.path),
            Some(Check { problem: None, .. }) => text(200, "ok"),
            Some(Check { problem: Some(problem), .. }) => {
                text(500, format!("internal server error: {problem}\n"))
            }
        };
    }
    let excluded = |name: &str| request.query.iter().any(|(k, v)| k == "exclude" && v == name);
    let mut lines = String::new();
    let mut failed = false;
    for Check { name, problem } in checks {
        let (sign, said) = match problem {
            _ if excluded(name) => ('+', "excluded: ok"),
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
