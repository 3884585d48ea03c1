//! The tokens of ServiceAccounts that pods have in their volumes: asked for, kept, and renewed in time.
//!
//! Upstream: pkg/kubelet/token/token_manager.go (v1.36): at 80 % of its life or after a day, less up to 10 s.
//! A part of the manager of volumes, which hands it the answers to its calls.
//! Owns: the tokens, as seals. Publishes: by `volumes`. Hears: -. Says: -. Asks: TokenRequests.
//! Never: gives up a token that still counts because a new one cannot be had.

use super::Ask;
use crate::backoff::BackOff;
use crate::cx::Cx;
use crate::effect::{ApiCall, Call, Lane, Verb};
use crate::event::Outcome;
use crate::facts::Facts;
use crate::managers::api::{Refusal, WITHIN, escaped, judged};
use crate::managers::offline::entries::KeptToken;
use crate::note::{Learned, Note};
use crate::rng::Rng;
use crate::sealed::Sealed;
use crate::time::{Mono, Now, Span, Wall};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use steplet_api::cluster::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use steplet_api::json;

/// No token is kept longer.
const AGE_MAX: Span = Span::from_secs(24 * 3600);
const JITTER_MAX: Span = Span::from_secs(10);
/// Between two requests for a token that is refused.
const REST: Span = Span::from_secs(1);
const REST_MOST: Span = Span::from_secs(60);
/// A token that was issued later than this from now is refused by servers whose clock is like ours (k/k#123415).
const LEEWAY: Span = Span::from_secs(60);
/// Between two requests that bring nothing but such tokens: the clocks are apart, and asking does not mend that.
const EARLY_REST: Span = Span::from_secs(120);
const EARLY_REST_MOST: Span = Span::from_secs(3600);

/// Everything that tells one token from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenKey {
    pub namespace: Box<str>,
    pub account: Box<str>,
    /// Empty: the API server itself.
    pub audience: Box<str>,
    pub seconds: i64,
    /// The pod that it is bound to.
    pub pod: Box<str>,
    pub uid: Box<str>,
}

/// The published slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokensFacts {
    held: BTreeMap<TokenKey, Held>,
    /// Why the last request brought none.
    failed: BTreeMap<TokenKey, Failed>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Failed {
    why: String,
    /// The API server said no; else nobody answered.
    refused: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Held {
    token: Sealed,
    issued: Wall,
    expires: Wall,
    /// When it came.
    at: Mono,
    /// It was past its end when it was last looked at.
    expired: bool,
}

impl TokensFacts {
    /// One that has expired is better than none while nobody answers. Errors: why there is none, in upstream's words.
    pub fn token(&self, key: &TokenKey) -> Result<Sealed, String> {
        let failed = self.failed.get(key);
        let why = failed.map_or("no answer yet", |failed| &failed.why);
        let refused = failed.is_some_and(|failed| failed.refused);
        match self.held.get(key) {
            Some(held) if !(held.expired && refused) => Ok(held.token),
            Some(_) => Err(format!(
                "token {:?}/{:?} expired and refresh failed: {why}",
                key.account, key.namespace
            )),
            None => Err(format!("failed to fetch token: {why}")),
        }
    }

    /// As it is to be kept.
    pub fn kept(&self, key: &TokenKey) -> Option<KeptToken> {
        let Held { token, issued, expires, .. } = self.held.get(key)?;
        Some(KeptToken { token: *token, issued: *issued, expires: *expires })
    }

    #[cfg(test)]
    pub(crate) fn of(key: TokenKey, token: Sealed) -> TokensFacts {
        let (issued, expires) = (Wall(0), Wall(i64::MAX));
        let held = Held { token, issued, expires, at: Mono(0), expired: false };
        TokensFacts { held: [(key, held)].into(), ..TokensFacts::default() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    rng: Rng,
    wanted: BTreeMap<TokenKey, Wanted>,
    /// Of an earlier life, until a pod wants them.
    restored: BTreeMap<TokenKey, KeptToken>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Wanted {
    asked: Option<Asked>,
    back_off: Option<BackOff>,
    /// When it is asked for again after a refusal.
    again: Option<Mono>,
    /// Tokens that were issued in the future came in a row: none is asked for because of that for so long.
    early: Option<Span>,
    /// That it is used although it has expired.
    told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Asked {
    at: Mono,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Why {
    /// There is none, or it has grown old.
    Due,
    /// It was issued in the future.
    Early,
}

impl Tokens {
    pub(crate) fn on_booted(&mut self, restored: BTreeMap<TokenKey, KeptToken>, rng: Rng) {
        self.rng = rng;
        self.restored = restored;
    }

    /// All pods that there are have said what they want: the rest of what was kept is of no use.
    pub(crate) fn drop_restored(&mut self, cx: &mut Cx<'_>) {
        for key in core::mem::take(&mut self.restored).into_keys() {
            cx.say(Note::Learned(Learned::Token(key)));
        }
    }

    /// Of these, what is used although it has expired, once for each: a sentence.
    pub(crate) fn expired(&mut self, cx: &Cx<'_>, keys: &BTreeSet<TokenKey>) -> Option<String> {
        let facts = &cx.facts.volumes.tokens;
        let used = |key: &TokenKey| {
            facts.held.get(key).is_some_and(|held| held.expired) && facts.token(key).is_ok()
        };
        let mut accounts = BTreeSet::new();
        for key in keys.iter().filter(|key| used(key)) {
            if let Some(wanted) = self.wanted.get_mut(key)
                && !core::mem::replace(&mut wanted.told, true)
            {
                accounts.insert(format!("{}/{}", key.namespace, key.account));
            }
        }
        let accounts: Vec<String> = accounts.into_iter().collect();
        (!accounts.is_empty()).then(|| {
            format!(
                "the token of {} has expired, and the API server does not answer: the pod keeps it until there is \
                 a new one",
                accounts.join(", ")
            )
        })
    }

    /// Asks for tokens that are not there or have grown old. Those of the pod that it does not want any more are
    /// forgotten.
    pub(crate) fn set(&mut self, cx: &mut Cx<'_>, uid: &str, keys: &BTreeSet<TokenKey>) {
        let gone = |key: &TokenKey| *key.uid == *uid && !keys.contains(key);
        self.wanted.retain(|key, _| !gone(key));
        let over: Vec<TokenKey> =
            cx.facts.volumes.tokens.held.keys().filter(|key| gone(key)).cloned().collect();
        for key in over {
            cx.facts.volumes.tokens.held.remove(&key);
            cx.say(Note::Learned(Learned::Token(key)));
        }
        cx.facts.volumes.tokens.failed.retain(|key, _| !gone(key));
        for key in keys {
            self.wanted.entry(key.clone()).or_default();
            if let Some(KeptToken { token, issued, expires }) = self.restored.remove(key) {
                let (at, expired) = (cx.now.mono, cx.now.wall >= expires);
                let held = Held { token, issued, expires, at, expired };
                cx.facts.volumes.tokens.held.insert(key.clone(), held);
            }
        }
    }

    /// Their seals open nothing any more.
    pub(crate) fn forget(&mut self, cx: &mut Cx<'_>, keys: &BTreeSet<TokenKey>) {
        cx.facts.volumes.tokens.held.retain(|key, _| !keys.contains(key));
    }

    pub(crate) fn refresh(&mut self, cx: &mut Cx<'_>, keys: &BTreeSet<TokenKey>) {
        for key in keys {
            let Some(wanted) = self.wanted.get(key) else { continue };
            if wanted.asked.is_some() || wanted.again.is_some() {
                continue;
            }
            let jitter = Span(self.rng.below(JITTER_MAX.0));
            let why = match cx.facts.volumes.tokens.held.get_mut(key) {
                None => Some(Why::Due),
                Some(held) => {
                    held.expired = cx.now.wall >= held.expires;
                    due(held, cx.now, jitter, wanted.early)
                }
            };
            if let Some(why) = why {
                self.ask(cx, key, why);
            }
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>, key: &TokenKey, why: Why) {
        let Some(wanted) = self.wanted.get_mut(key) else { return };
        wanted.again = None;
        wanted.asked = Some(Asked { at: cx.now.mono, why });
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}/token",
            escaped(&key.namespace),
            escaped(&key.account)
        );
        let audiences = [&key.audience].into_iter().filter(|it| !it.is_empty()).cloned();
        let bound_object_ref = Some(BoundObjectReference {
            kind: "Pod".into(),
            api_version: "v1".into(),
            name: key.pod.clone(),
            uid: key.uid.clone(),
        });
        let expiration_seconds = Some(key.seconds);
        let audiences = audiences.collect();
        let request = TokenRequest {
            api_version: "authentication.k8s.io/v1".into(),
            kind: "TokenRequest".into(),
            spec: TokenRequestSpec { audiences, expiration_seconds, bound_object_ref },
            status: None,
        };
        let (body, lane) = (json::to_vec(&request).into(), Lane::Main);
        let call = ApiCall {
            verb: Verb::Post,
            path,
            body,
            within: WITHIN,
            lane,
            seals: true,
            secret: None,
        };
        cx.call(Ask::Token(key.clone()), Call::Api(call));
    }

    /// How long these are waited for; None: not at all.
    pub(crate) fn awaited(&self, cx: &Cx<'_>, keys: &BTreeSet<TokenKey>) -> Option<Mono> {
        let until = keys.iter().filter_map(|key| {
            let asked = self.wanted.get(key)?.asked?;
            // An old one serves soon.
            let held = cx.facts.volumes.tokens.held.contains_key(key);
            Some(asked.at + if held { REST } else { WITHIN + REST })
        });
        until.max()
    }

    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.wanted.values().filter_map(|wanted| wanted.again).min()
    }

    pub(crate) fn on_tick(&mut self, cx: &mut Cx<'_>) {
        let due = self.wanted.iter().filter(|(_, it)| it.again.is_some_and(|at| at <= cx.now.mono));
        let due: Vec<TokenKey> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.ask(cx, &key, Why::Due);
        }
    }

    /// The answer to a request. Whether whoever waits for it should look again.
    pub(crate) fn on_done(&mut self, cx: &mut Cx<'_>, key: &TokenKey, outcome: Outcome) -> bool {
        let Some(wanted) = self.wanted.get_mut(key) else { return false };
        let Some(asked) = wanted.asked.take() else { return false };
        let facts = &mut cx.facts.volumes.tokens;
        match judged(outcome).and_then(|body| read(&body, key, cx.now)) {
            Ok(held) => {
                let early = held.issued > cx.now.wall + LEEWAY;
                wanted.early = match (asked.why, wanted.early) {
                    _ if !early => None,
                    (Why::Due, _) => Some(Span::ZERO),
                    (Why::Early, rest) => {
                        let twice = rest.unwrap_or_default().times(2);
                        Some(twice.max(EARLY_REST).min(EARLY_REST_MOST))
                    }
                };
                wanted.back_off = None;
                wanted.told = false;
                facts.failed.remove(key);
                facts.held.insert(key.clone(), held);
                cx.say(Note::Learned(Learned::Token(key.clone())));
                true
            }
            Err(refusal) => {
                let now = cx.now.mono;
                match &mut wanted.back_off {
                    None => wanted.back_off = Some(BackOff::first(now, REST)),
                    Some(back_off) => back_off.again(now, REST, REST_MOST),
                }
                let rest = wanted.back_off.as_ref().map_or(REST, BackOff::period);
                let rest = rest.max(refusal.retry_after.unwrap_or_default());
                wanted.again = Some(now + self.rng.jitter(rest, 20));
                let failed =
                    Failed { why: refusal.message.clone(), refused: !refusal.is_silence() };
                let before = facts.failed.insert(key.clone(), failed.clone());
                if before.as_ref() != Some(&failed) {
                    let TokenKey { account, namespace, pod, .. } = key;
                    log::warn!(
                        "No token of {namespace}/{account} for pod {pod}: {}",
                        refusal.message
                    );
                }
                true
            }
        }
    }

    pub(crate) fn check(&self, facts: &Facts) {
        let mut held = facts.volumes.tokens.held.keys();
        assert!(held.all(|key| self.wanted.contains_key(key)), "volumes: a token without a pod");
    }
}

/// Why a token is to be replaced, if it is.
fn due(held: &Held, now: Now, jitter: Span, early: Option<Span>) -> Option<Why> {
    let life = Span(u64::try_from(held.expires.0.saturating_sub(held.issued.0)).unwrap_or(0));
    let good = Span(life.0 / 5 * 4).min(AGE_MAX);
    let old = now.mono.since(held.at) + jitter >= good;
    // The clock may have been set: what counts is what it shows to those who are given the token.
    if old || now.wall + jitter >= held.issued + good {
        return Some(Why::Due);
    }
    let rests = early.is_some_and(|rest| now.mono.since(held.at) < rest);
    (held.issued > now.wall + LEEWAY && !rests).then_some(Why::Early)
}

fn read(body: &[u8], key: &TokenKey, now: Now) -> Result<Held, Refusal> {
    let wrong = |message: String| Refusal { message, ..Refusal::default() };
    let answer: TokenRequest = json::from_slice(body).map_err(wrong)?;
    let status = answer.status.ok_or_else(|| wrong("an answer without a token".into()))?;
    let expires = status.expiration_timestamp.ns();
    let expires = expires.ok_or_else(|| wrong("a token without an end".into()))?;
    let seconds = answer.spec.expiration_seconds.unwrap_or(key.seconds).max(1);
    let issued = expires.saturating_sub(seconds.saturating_mul(1_000_000_000));
    let (issued, expires) = (Wall(issued), Wall(expires));
    let token = Sealed::numbered(status.token);
    // What has just come is good, whatever our clock makes of it.
    Ok(Held { token, issued, expires, at: now.mono, expired: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    #[test]
    fn when_a_token_is_replaced() {
        // Seconds of age by both clocks, of its life, and since when it is from the future; jitter.
        fn check(
            mono: u64,
            wall: i64,
            life: u64,
            jitter: u64,
            early: Option<u64>,
            want: Option<Why>,
        ) {
            let second = |s: i64| Wall(s * 1_000_000_000);
            let held = Held {
                token: Sealed::numbered(1),
                issued: second(0),
                expires: second(life as i64),
                at: Mono(0),
                expired: false,
            };
            let now = Now { mono: Mono(0) + Span::from_secs(mono), wall: second(wall) };
            let got = due(&held, now, Span::from_secs(jitter), early.map(Span::from_secs));
            assert_eq!(got, want, "{mono} {wall} of {life}, {jitter}, {early:?}");
        }
        let due = Some(Why::Due);
        check(0, 0, HOUR, 0, None, None);
        check(2879, 2879, HOUR, 0, None, None);
        check(2880, 2880, HOUR, 0, None, due);
        check(2871, 2871, HOUR, 9, None, due);
        check(24 * HOUR - 1, 86_399, 365 * 24 * HOUR, 0, None, None);
        check(24 * HOUR, 86_400, 365 * 24 * HOUR, 0, None, due);
        // The clock was set forward, and back: by either clock it is too old at some time.
        check(10, 2880, HOUR, 0, None, due);
        check(2880, 100, HOUR, 0, None, due);
        // Issued in the future.
        check(10, -60, HOUR, 0, None, None);
        check(10, -61, HOUR, 0, None, Some(Why::Early));
        check(10, -61, HOUR, 0, Some(0), Some(Why::Early));
        check(10, -61, HOUR, 0, Some(120), None);
        check(120, -61, HOUR, 0, Some(120), Some(Why::Early));
        check(0, 0, 0, 0, None, due);
    }

    #[test]
    fn answers() {
        let key = TokenKey {
            namespace: "ns".into(),
            account: "sa".into(),
            audience: "".into(),
            seconds: 3600,
            pod: "p".into(),
            uid: "u".into(),
        };
        let read = |body: &str| {
            let held = read(body.as_bytes(), &key, Now::default()).map_err(|e| e.message)?;
            Ok::<_, String>((held.token.number(), held.issued.0, held.expires.0))
        };
        let good = r#"{"spec":{"expirationSeconds":60},
            "status":{"token":4,"expirationTimestamp":"1970-01-01T00:02:00Z"}}"#;
        assert_eq!(read(good), Ok((4, 60_000_000_000, 120_000_000_000)));
        assert_eq!(read("{}"), Err("an answer without a token".into()));
        let endless = read(r#"{"status":{"token":4}}"#);
        assert_eq!(endless, Err("a token without an end".into()));
        let open = read(r#"{"status":{"token":"s3cret"}}"#);
        assert!(open.is_err());
        let mut facts = TokensFacts::default();
        let why = "failed to fetch token: no answer yet";
        assert_eq!(facts.token(&key), Err(why.into()));
        facts.failed.insert(key.clone(), Failed { why: "forbidden".into(), refused: true });
        assert_eq!(facts.token(&key), Err("failed to fetch token: forbidden".into()));
        let held = TokensFacts::of(key.clone(), Sealed::numbered(1)).held;
        facts.held = held;
        assert_eq!(facts.token(&key), Ok(Sealed::numbered(1)));
        facts.held.get_mut(&key).unwrap().expired = true;
        let expired = "token \"sa\"/\"ns\" expired and refresh failed: forbidden";
        assert_eq!(facts.token(&key), Err(expired.into()));
    }
}
