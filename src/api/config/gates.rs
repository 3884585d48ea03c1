//! Feature gates: which are on, and what may not be said about them.

use super::gate_table::{GATES, Gate, NEEDS};
use super::problem::{Problem, ProblemKind, alike};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const UNKNOWN: &str = "no feature gate has this name";
/// Unknown gates for which one of a near name is looked for.
const NEAR_MAX: usize = 20;

/// How ripe a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Alpha,
    Beta,
    Ga,
    Deprecated,
}

/// The gates as configured; what is not said has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeatureGates {
    said: BTreeMap<&'static str, bool>,
    /// `AllAlpha` and `AllBeta`, for the gates of that stage of which nothing else is said.
    all_alpha: Option<bool>,
    all_beta: Option<bool>,
}

impl FeatureGates {
    /// Adds what a configuration says; later words win. Gates that are unknown, or locked to the
    /// other value, are problems at `featureGates.NAME` and change nothing.
    pub fn set(&mut self, gates: &BTreeMap<String, bool>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, &on) in gates {
            match (name.as_str(), find(name)) {
                ("AllAlpha", _) => self.all_alpha = Some(on),
                ("AllBeta", _) => self.all_beta = Some(on),
                (_, Some(gate)) if gate.locked && gate.default != on => {
                    let what =
                        format!("is locked to {} since the feature is settled", gate.default);
                    problems.push(at(name, what));
                }
                (_, Some(gate)) => {
                    self.said.insert(gate.name, on);
                }
                // To look for what was meant takes a while.
                (_, None) if problems.len() < NEAR_MAX => problems.push(at(name, unknown(name))),
                (_, None) => problems.push(at(name, UNKNOWN.into())),
            }
        }
        problems
    }

    /// Whether a gate is on. Gates that do not exist are off.
    pub fn enabled(&self, name: &str) -> bool {
        find(name).is_some_and(|gate| self.state(gate))
    }

    fn state(&self, gate: &Gate) -> bool {
        let all = match gate.stage {
            Stage::Alpha => self.all_alpha,
            Stage::Beta => self.all_beta,
            Stage::Ga | Stage::Deprecated => None,
        };
        self.said.get(gate.name).copied().or(all).unwrap_or(gate.default)
    }

    /// Gates that are on while one that they need is off.
    pub fn check(&self) -> Vec<Problem> {
        let lacking =
            NEEDS.iter().filter(|(name, _)| self.enabled(name)).filter_map(|(name, needs)| {
                let off: Vec<&str> =
                    needs.iter().copied().filter(|need| !self.enabled(need)).collect();
                (!off.is_empty()).then(|| at(name, format!("is on, but needs {}", off.join(", "))))
            });
        lacking.collect()
    }
}

fn find(name: &str) -> Option<&'static Gate> {
    GATES.binary_search_by(|gate| gate.name.cmp(name)).ok().map(|at| &GATES[at])
}

/// What says the same of a gate as nothing.
pub(super) fn default(name: &str) -> Option<bool> {
    match name {
        "AllAlpha" => Some(false),
        // Some are on, some are off.
        "AllBeta" => None,
        _ => find(name).map(|gate| gate.default),
    }
}

fn at(name: &str, what: String) -> Problem {
    Problem::new(&format!("featureGates.{name}"), ProblemKind::Invalid, what)
}

fn unknown(name: &str) -> String {
    let names: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
    match alike(name, &names) {
        Some(near) => format!("{UNKNOWN}; is it {near}?"),
        None => UNKNOWN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &[(&str, bool)]) -> (FeatureGates, Vec<String>) {
        let mut gates = FeatureGates::default();
        let said = words.iter().map(|(name, on)| (String::from(*name), *on)).collect();
        let problems = gates.set(&said);
        let problems = problems.iter().chain(&gates.check()).map(|p| format!("{p}")).collect();
        (gates, problems)
    }

    #[test]
    fn tables_are_in_order_and_refer_to_each_other() {
        assert!(GATES.is_sorted_by(|a, b| a.name < b.name));
        for (name, needs) in NEEDS {
            assert!(find(name).is_some(), "{name}");
            assert!(!needs.is_empty() && needs.iter().all(|need| find(need).is_some()), "{name}");
        }
        assert_eq!(FeatureGates::default().check(), []);
    }

    #[test]
    fn words() {
        let check =
            |words: &[(&str, bool)], want: &[&str]| assert_eq!(set(words).1, want, "{words:?}");
        check(&[("MemoryQoS", true), ("EventedPLEG", true), ("NodeSwap", true)], &[]);
        check(
            &[("NodeSwap", false)],
            &["featureGates.NodeSwap: is locked to true since the feature is settled"],
        );
        check(
            &[("memoryQos", true), ("Blue", true)],
            &[
                "featureGates.Blue: no feature gate has this name",
                "featureGates.memoryQos: no feature gate has this name; is it MemoryQoS?",
            ],
        );
        check(
            &[("GracefulNodeShutdown", false)],
            &[
                "featureGates.GracefulNodeShutdownBasedOnPodPriority: is on, \
                 but needs GracefulNodeShutdown",
                "featureGates.WindowsGracefulNodeShutdown: is on, but needs GracefulNodeShutdown",
            ],
        );
    }

    #[test]
    fn all_of_a_stage() {
        let (gates, _) = set(&[("AllAlpha", true), ("QOSReserved", false)]);
        assert!(gates.enabled("MemoryQoS") && !gates.enabled("QOSReserved"));
        let (gates, _) = set(&[("AllBeta", false), ("EnvFiles", true)]);
        assert!(!gates.enabled("PodLevelResources") && gates.enabled("EnvFiles"));
        assert!(gates.enabled("NodeSwap") && !gates.enabled("Blue"));
    }
}
