//! Kubernetes events as `steplet run` tells them.

use steplet_core::managers::node::events::Told;
use steplet_core::time::Wall;

/// Whose event it is, why, and what: `default/web app Failed: ...`.
pub fn words(told: &Told) -> String {
    // spec.containers{app}
    let container = told.field.split_once('{').and_then(|(_, name)| name.strip_suffix('}'));
    let whose = [Some(told.pod.as_str()), container].into_iter().flatten();
    let mut words: Vec<&str> = whose.filter(|word| !word.is_empty()).collect();
    words.push(&told.reason);
    format!("{}: {}", words.join(" "), shortened(&told.message))
}

/// Without a cluster, no pod can have the cluster's DNS, and nobody misses it. What is wrong with a manifest
/// is shown for as long as it is so, and not as news; so is the state of a pod after a failed pull.
pub fn counts(told: &Told) -> bool {
    let refusal = told.uid.is_none() && told.reason == "FailedValidation";
    let state = told.message.strip_prefix("Error: ");
    let pull = matches!(state, Some("ErrImagePull" | "ImagePullBackOff"));
    told.reason != "MissingClusterDNS" && !refusal && !pull
}

/// A runtime tells a failed pull as a chain of failures, each with the image's name: the last one is the cause.
fn shortened(message: &str) -> String {
    let Some((what, why)) = message.split_once(": ") else { return message.to_owned() };
    if !what.starts_with("Failed to pull image") {
        return message.to_owned();
    }
    let parts: Vec<&str> = why.split(": ").collect();
    let links = |part: &&&str| part.starts_with("failed to ") || part.starts_with("rpc error");
    // The last part says something, whatever it is.
    let links = parts[..parts.len() - 1].iter().take_while(links).count();
    format!("{what}: {}", parts[links..].join(": "))
}

/// Time of day, in UTC.
pub fn clock(wall: Wall) -> String {
    let second = wall.0.div_euclid(1_000_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_and_what() {
        let check = |pod: &str, field: &str, message: &str, want: &str| {
            let told = Told {
                uid: None,
                pod: pod.into(),
                field: field.into(),
                warning: true,
                reason: "Failed".into(),
                message: message.into(),
                count: 1,
                last: Wall(0),
            };
            assert_eq!(words(&told), want);
        };
        check("", "", "no disk", "Failed: no disk");
        check("a/b", "", "no disk", "a/b Failed: no disk");
        check("a/b", "spec.containers{app}", "it ended", "a/b app Failed: it ended");
        check(
            "a/b",
            "spec.containers{app}",
            "Failed to pull image \"x:1\": failed to pull and unpack image \"docker.io/x:1\": failed to \
             resolve reference \"docker.io/x:1\": docker.io/x:1: not found",
            "a/b app Failed: Failed to pull image \"x:1\": docker.io/x:1: not found",
        );
        check(
            "a/b",
            "",
            "Failed to pull image \"x\": failed to reach it",
            "a/b Failed: Failed to pull image \"x\": failed to reach it",
        );
    }

    #[test]
    fn times() {
        assert_eq!(clock(Wall(1_796_051_045_999_999_999)), "15:04:05");
        assert_eq!(clock(Wall(-1)), "23:59:59");
    }
}
