//! Short names for what has long ones: `web` for the pod `web-edge-1` in the namespace default, `web(2)` for the second
//! pod of that name, `web#1` for its sandbox of attempt 1, `web/app#0` for a container.

use crate::setup::NODE;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Names {
    /// Pods by uid.
    pods: BTreeMap<String, String>,
    /// How often a name was given.
    given: BTreeMap<String, u32>,
    /// Sandboxes and containers by id.
    ids: BTreeMap<String, String>,
}

impl Names {
    /// Names a pod when it is first seen.
    pub fn pod(&mut self, uid: &str, namespace: &str, name: &str) -> String {
        if let Some(known) = self.pods.get(uid) {
            return known.clone();
        }
        let name = name.strip_suffix(NODE).map_or(name, |name| name.trim_end_matches('-'));
        let name = match namespace {
            "default" => name.to_owned(),
            _ => format!("{namespace}:{name}"),
        };
        let count = self.given.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count == 1 { name } else { format!("{name}({count})") };
        self.pods.insert(uid.to_owned(), name.clone());
        name
    }

    pub fn known_pod(&self, uid: &str) -> Option<&str> {
        self.pods.get(uid).map(String::as_str)
    }

    pub fn sandbox(&mut self, id: &str, pod: &str, attempt: u32) {
        self.ids.insert(id.to_owned(), format!("{pod}#{attempt}"));
    }

    pub fn container(&mut self, id: &str, pod: &str, name: &str, attempt: u32) {
        self.ids.insert(id.to_owned(), format!("{pod}/{name}#{attempt}"));
    }

    /// The name behind an id of the runtime.
    pub fn of(&self, id: &str) -> String {
        self.ids.get(id).cloned().unwrap_or_else(|| "?".into())
    }

    /// Ids of sandboxes and containers that the target means.
    pub fn ids<'a>(&'a self, target: &'a Target) -> impl Iterator<Item = &'a str> {
        let meant = self.ids.iter().filter(|(_, name)| target.covers(&Target::parse(name)));
        meant.map(|(id, _)| id.as_str())
    }

    /// Puts names in place of uids and ids.
    pub fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (id, name) in &self.ids {
            text = text.replace(id, &format!("<{name}>"));
        }
        for (uid, name) in &self.pods {
            text = text.replace(uid, &format!("<{name}>"));
        }
        text
    }

    pub fn knows(&self, pod: &str) -> bool {
        self.pods.values().any(|name| Target::parse(name).pod == pod)
    }
}

/// What a word of a scene points at. What it leaves out is any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub pod: String,
    pub instance: Option<u32>,
    pub container: Option<String>,
    pub attempt: Option<u32>,
}

impl Target {
    pub fn parse(word: &str) -> Target {
        let (rest, attempt) = match word.split_once('#') {
            Some((rest, attempt)) => (rest, attempt.parse().ok()),
            None => (word, None),
        };
        let (rest, container) = match rest.split_once('/') {
            Some((rest, container)) => (rest, Some(container.to_owned())),
            None => (rest, None),
        };
        let (pod, instance) = match rest.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
            Some((pod, instance)) => (pod, instance.parse().ok()),
            None => (rest, None),
        };
        Target { pod: pod.to_owned(), instance, container, attempt }
    }

    /// Whether `other` is among what this one means. The first pod of a name has no number.
    pub fn covers(&self, other: &Target) -> bool {
        self.pod == other.pod
            && (self.instance.is_none_or(|n| n == other.instance.unwrap_or(1)))
            && (self.container.is_none() || self.container == other.container)
            && (self.attempt.is_none() || self.attempt == other.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_cover_what_they_leave_open() {
        let check = |a: &str, b: &str, want| {
            assert_eq!(Target::parse(a).covers(&Target::parse(b)), want, "{a} {b}");
        };
        check("web", "web/app#0", true);
        check("web", "web(2)#1", true);
        check("web(1)", "web/app#0", true);
        check("web(2)", "web/app#0", false);
        check("web/app", "web/app#3", true);
        check("web/app#2", "web/app#3", false);
        check("web/app", "web#0", false);
        check("we", "web", false);
    }

    #[test]
    fn a_second_pod_of_a_name_is_told_apart() {
        let mut names = Names::default();
        assert_eq!(names.pod("u1", "default", "web-edge-1"), "web");
        assert_eq!(names.pod("u2", "default", "web-edge-1"), "web(2)");
        assert_eq!(names.pod("u1", "default", "web-edge-1"), "web");
        assert_eq!(names.pod("u3", "kube-system", "dns-edge-1"), "kube-system:dns");
        assert_eq!(names.scrub("pods/u2/x"), "pods/<web(2)>/x");
    }
}
