//! Who asks on 10250, and whether they may: by certificate, by token, or nameless; then by the API server's word.
//!
//! Upstream: pkg/kubelet/server/auth.go, cmd/kubelet/app/auth.go (v1.36).
//! Owns: requests that wait for a review, and the reviews of the last minutes. Publishes: -. Hears: -. Says: -.
//! Asks: TokenReview, SubjectAccessReview. Never: lets in anybody whom it could not ask about.

use super::{Ask, text};
use crate::cx::Cx;
use crate::effect::{ApiCall, Call, Lane, Reply, Verb};
use crate::event::{Outcome, Request, User};
use crate::ids::RequestId;
use crate::managers::api::{WITHIN, judged};
use crate::sealed::Sealed;
use crate::settings::AuthSettings;
use crate::time::{Mono, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steplet_api::json;

/// Requests that may wait for a review at once.
const WAITING_MOST: usize = 256;
/// Reviews that are remembered.
const KNOWN_MOST: usize = 1024;
/// A token that was refused is not asked about again for so long.
const REFUSED_FOR: Span = Span::from_secs(10);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Auth {
    waiting: BTreeMap<RequestId, Waiting>,
    /// None: it is nobody's.
    tokens: BTreeMap<Sealed, (Option<User>, Mono)>,
    access: BTreeMap<Question, (bool, Mono)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Waiting {
    request: Box<Request>,
    /// Once it is known.
    user: Option<User>,
}

/// User, method and subresource.
type Question = (User, String, String);

/// What becomes of a request.
pub enum Entry {
    May(Box<Request>),
    Not(RequestId, Reply),
    /// The API server is being asked.
    Waits,
}

impl Auth {
    pub fn enter(&mut self, cx: &mut Cx<'_>, auth: &AuthSettings, request: Box<Request>) -> Entry {
        let now = cx.now.mono;
        if let Some(Ok(user)) = &request.certificate {
            let mut user = user.clone();
            // As whoever is known belongs to (authenticator/group in apiserver); a token's review says so itself.
            user.groups.push("system:authenticated".into());
            return self.authorize(cx, auth, request, user);
        }
        if let Some(token) = request.bearer.filter(|_| auth.token_reviews) {
            self.tokens.retain(|_, (_, until)| *until > now);
            return match self.tokens.get(&token) {
                Some((Some(user), _)) => {
                    let user = user.clone();
                    self.authorize(cx, auth, request, user)
                }
                Some((None, _)) => Entry::Not(request.id, unauthorized()),
                None => self.review(cx, request, token),
            };
        }
        let nameless = request.bearer.is_none() || !auth.token_reviews;
        if auth.anonymous && nameless && request.certificate.is_none() {
            let groups = ["system:unauthenticated".into()].into();
            let user = User { name: "system:anonymous".into(), groups, ..User::default() };
            return self.authorize(cx, auth, request, user);
        }
        Entry::Not(request.id, unauthorized())
    }

    pub fn on_gone(&mut self, request: RequestId) {
        self.waiting.remove(&request);
    }

    fn wait(&mut self, request: Box<Request>, user: Option<User>) -> Result<RequestId, Entry> {
        let id = request.id;
        if self.waiting.len() >= WAITING_MOST {
            let text = text(429, "too many requests wait for the API server\n");
            return Err(Entry::Not(id, text));
        }
        self.waiting.insert(id, Waiting { request, user });
        Ok(id)
    }

    fn review(&mut self, cx: &mut Cx<'_>, request: Box<Request>, token: Sealed) -> Entry {
        let id = match self.wait(request, None) {
            Ok(id) => id,
            Err(entry) => return entry,
        };
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": "" },
        });
        let call = ApiCall {
            verb: Verb::Post,
            path: "/apis/authentication.k8s.io/v1/tokenreviews".into(),
            body: json::to_vec(&body).into(),
            within: WITHIN,
            lane: Lane::Heartbeat,
            seals: false,
            secret: Some(("/spec/token".into(), token)),
        };
        cx.call(Ask::Token { request: id, token }, Call::Api(call));
        Entry::Waits
    }

    pub fn on_token(
        &mut self,
        cx: &mut Cx<'_>,
        auth: &AuthSettings,
        (id, token): (RequestId, Sealed),
        outcome: Outcome,
    ) -> Entry {
        let user = match judged(outcome) {
            Ok(body) => json::from_slice::<Value>(&body).ok().and_then(|review| user_of(&review)),
            Err(refusal) => {
                log::warn!("A token cannot be reviewed: {}", refusal.message);
                let Some(waiting) = self.waiting.remove(&id) else { return Entry::Waits };
                return Entry::Not(waiting.request.id, unauthorized());
            }
        };
        if self.tokens.len() >= KNOWN_MOST {
            self.tokens.pop_first();
        }
        let keep = if user.is_some() { auth.token_ttl } else { REFUSED_FOR };
        self.tokens.insert(token, (user.clone(), cx.now.mono + keep));
        let Some(waiting) = self.waiting.remove(&id) else { return Entry::Waits };
        match user {
            Some(user) => self.authorize(cx, auth, waiting.request, user),
            None => Entry::Not(id, unauthorized()),
        }
    }

    fn authorize(
        &mut self,
        cx: &mut Cx<'_>,
        auth: &AuthSettings,
        request: Box<Request>,
        user: User,
    ) -> Entry {
        if auth.always_allow {
            return Entry::May(request);
        }
        let now = cx.now.mono;
        self.access.retain(|_, (_, until)| *until > now);
        for subresource in subresources(&request.path) {
            let question = question(&request, &user, subresource);
            match self.access.get(&question) {
                Some((true, _)) => return Entry::May(request),
                Some((false, _)) => {}
                None => return self.ask(cx, request, user, subresource),
            }
        }
        let names: Vec<&str> = subresources(&request.path).to_vec();
        let why = format!(
            "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            verb(&request.method),
            names.join(" ")
        );
        Entry::Not(request.id, text(403, why))
    }

    fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        request: Box<Request>,
        user: User,
        subresource: &'static str,
    ) -> Entry {
        let extra: BTreeMap<&str, &Vec<String>> =
            user.extra.iter().map(|(key, values)| (key.as_str(), values)).collect();
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "groups": user.groups,
                "uid": user.uid,
                "extra": extra,
                "resourceAttributes": {
                    "verb": verb(&request.method),
                    "version": "v1",
                    "resource": "nodes",
                    "subresource": subresource,
                    "name": cx.facts.settings().node_name,
                },
            },
        });
        let id = match self.wait(request, Some(user)) {
            Ok(id) => id,
            Err(entry) => return entry,
        };
        let call = ApiCall {
            verb: Verb::Post,
            path: "/apis/authorization.k8s.io/v1/subjectaccessreviews".into(),
            body: json::to_vec(&body).into(),
            within: WITHIN,
            lane: Lane::Heartbeat,
            seals: false,
            secret: None,
        };
        cx.call(Ask::Access { request: id, subresource: subresource.into() }, Call::Api(call));
        Entry::Waits
    }

    pub fn on_access(
        &mut self,
        cx: &mut Cx<'_>,
        auth: &AuthSettings,
        (id, asked): (RequestId, &str),
        outcome: Outcome,
    ) -> Entry {
        let Some(Waiting { request, user: Some(user) }) = self.waiting.remove(&id) else {
            return Entry::Waits;
        };
        let allowed = match judged(outcome) {
            Ok(body) => {
                let review = json::from_slice::<Value>(&body).unwrap_or_default();
                let status = &review["status"];
                status["allowed"] == true && status["denied"] != true
            }
            Err(refusal) => {
                log::warn!("The API server cannot say who may what: {}", refusal.message);
                let why = format!(
                    "Authorization error (user={}, verb={}, resource=nodes, subresource={asked})",
                    user.name,
                    verb(&request.method),
                );
                return Entry::Not(id, text(500, why));
            }
        };
        let Some(subresource) = subresources(&request.path).iter().find(|known| **known == asked)
        else {
            return Entry::Not(id, unauthorized());
        };
        if self.access.len() >= KNOWN_MOST {
            self.access.pop_first();
        }
        let keep = if allowed { auth.allowed_ttl } else { auth.denied_ttl };
        // Also when the configuration wants nothing kept, this request has its answer.
        let until = cx.now.mono + keep.max(Span::from_millis(1));
        self.access.insert(question(&request, &user, subresource), (allowed, until));
        self.authorize(cx, auth, request, user)
    }
}

fn question(request: &Request, user: &User, subresource: &str) -> Question {
    (user.clone(), request.method.clone(), subresource.into())
}

fn unauthorized() -> Reply {
    text(401, "Unauthorized")
}

/// The user that a TokenReview names.
fn user_of(review: &Value) -> Option<User> {
    let status = review.get("status")?;
    if status.get("authenticated") != Some(&Value::Bool(true)) {
        return None;
    }
    let user = status.get("user")?;
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|text| text.as_str().map(String::from)).collect()
    };
    let extra = user.get("extra").and_then(Value::as_object);
    Some(User {
        name: user.get("username")?.as_str()?.into(),
        uid: user.get("uid").and_then(Value::as_str).unwrap_or_default().into(),
        groups: user.get("groups").map(texts).unwrap_or_default(),
        extra: extra.into_iter().flatten().map(|(key, all)| (key.clone(), texts(all))).collect(),
    })
}

/// What is asked for: the first that is allowed is enough.
fn subresources(path: &str) -> &'static [&'static str] {
    let head = path.split('/').nth(1).unwrap_or_default();
    match head {
        "pods" | "runningpods" => &["pods", "proxy"],
        "healthz" => &["healthz", "proxy"],
        "configz" => &["configz", "proxy"],
        "stats" => &["stats"],
        "metrics" => &["metrics"],
        "logs" => &["log"],
        "checkpoint" => &["checkpoint"],
        "statusz" => &["statusz"],
        "flagz" => &["configz"],
        _ => &["proxy"],
    }
}

fn verb(method: &str) -> &'static str {
    match method {
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_subresources() {
        let check =
            |path: &str, want: &str| assert_eq!(subresources(path).join(" "), want, "{path}");
        check("/pods", "pods proxy");
        check("/runningpods/", "pods proxy");
        check("/healthz/ping", "healthz proxy");
        check("/metrics/cadvisor", "metrics");
        check("/stats/summary", "stats");
        check("/logs/syslog", "log");
        check("/exec/ns/pod/c", "proxy");
        check("/", "proxy");
    }

    #[test]
    fn users_of_reviews() {
        let check = |review: &str, want: Option<&str>| {
            let review = json::from_slice(review.as_bytes()).expect("a table");
            let got = user_of(&review).map(|user| format!("{} {:?}", user.name, user.groups));
            assert_eq!(got.as_deref(), want, "{review}");
        };
        check(
            r#"{"status":{"authenticated":true,"user":{"username":"a","groups":["g",1]}}}"#,
            Some("a [\"g\"]"),
        );
        check(r#"{"status":{"authenticated":false,"user":{"username":"a"}}}"#, None);
        check(r#"{"status":{"authenticated":"true","user":{"username":"a"}}}"#, None);
        check(r#"{"status":{"authenticated":true}}"#, None);
        check("{}", None);
    }
}
