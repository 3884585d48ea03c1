//! `/flagz` and `/statusz`: the flags in effect, and since when the agent runs, for people.
//!
//! Upstream: component-base/zpages (v1.36), its text form. Pure.

use crate::effect::Reply;
use crate::facts::Facts;
use crate::settings::KUBERNETES_VERSION;
use crate::time::Now;
use alloc::format;
use alloc::string::String;
use steplet_api::time::Time;

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.\n";

/// What `/statusz` names: where to look next.
const PATHS: &str = "/checkpoint /configz /containerLogs /debug /flagz /healthz /logs /metrics /pods /runningpods /statusz";

pub(super) fn flagz(facts: &Facts) -> Reply {
    let flags = String::from_utf8_lossy(&facts.settings().flagz);
    super::text(200, format!("\nkubelet flagz\n{WARNING}{flags}"))
}

/// `started` is when the agent began to run.
pub(super) fn statusz(now: Now, started: Now) -> Reply {
    let up = now.mono.since(started.mono).secs();
    let up = format!("{} hr {:02} min {:02} sec", up / 3_600, up / 60 % 60, up % 60);
    // By the clock of today: at the start it may have been unset.
    let ago = i64::try_from(now.mono.since(started.mono).0).unwrap_or(i64::MAX);
    let since = Time::from_ns(now.wall.0.saturating_sub(ago));
    let version = KUBERNETES_VERSION.trim_start_matches('v');
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    super::text(
        200,
        format!(
            "\nkubelet statusz\n{WARNING}\nStarted: {since}\nUp: {up}\nGo version: none (Steplet is written in \
             Rust)\nBinary version: {version}\nEmulation version: {minor}\nPaths: {PATHS}\n"
        ),
    )
}
