//! What the server does with a request that has arrived.

use super::cluster::Place;
use super::link::Lists;
use super::refusal::Refusal;
use super::request::Request;
use super::store::Page;
use super::watch::{Watch, bookmark, line};
use super::{ApiServer, By, GONE, Out, Signing, Stored, Wake, permits};
use crate::clock::{At, EPOCH};
use crate::doors::pki::{Certificate, Wanted};
use crate::doors::runtime::Caller;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use std::rc::Rc;
use steplet_core::effect::{ApiCall, Lane, Verb};
use steplet_core::event::ApiReply;
use steplet_core::time::{Span, Wall};

/// The server ends a watch without a limit after thirty minutes to an hour (`--min-request-timeout`).
const WATCH_SECONDS: (u64, u64) = (1_800, 3_600);
const BOOKMARK: Span = Span::from_secs(60);
const CSRS: &str = "certificatesigningrequests";
const BACKDATED: Span = Span::from_secs(300);
/// `-----BEGIN CERTIFICATE-----` and so on, with nothing in it.
const CERTIFICATE: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";

impl ApiServer {
    pub(super) fn arrive(
        &mut self,
        at: At,
        caller: Caller,
        call: &ApiCall,
        lost: bool,
        out: &mut Out,
    ) {
        let back = at + self.trip();
        if self.link.down {
            if self.waiting.contains_key(&caller) {
                out.answers.push((back, caller, Err(GONE.into())));
            }
            return;
        }
        let mut body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        if let Some((place, seal)) = &call.secret
            && let (Some(place), Some(secret)) = (body.pointer_mut(place), self.vault.open(*seal))
        {
            *place = json!(secret);
        }
        let request = Request::read(call);
        let request = request.and_then(|request| {
            if call.lane == Lane::Bootstrap && request.resource.plural != CSRS {
                let what = "a bootstrap token is good for certificates only";
                return Err(Refusal::forbidden(what));
            }
            permits::check(&self.node, call.verb, &request, &body, &self.cluster.store)?;
            Ok(request)
        });
        if let (Verb::Watch, Ok(request)) = (call.verb, &request) {
            // Who has left, or cannot be told, has no watch.
            if lost || !self.waiting.contains_key(&caller) {
                return;
            }
            if self.watch(at, back, caller, request, call.seals, out) {
                return;
            }
        }
        let done = request.and_then(|request| self.answer(at, call.verb, &request, body, out));
        if let Err(refusal) = &done
            && improper(refusal, &call.path)
            && !(refusal.code == 422 && self.is_mirror(&call.path))
        {
            let what = format!("{:?} {}: {}", call.verb, call.path, refusal.message);
            out.refused.push(what);
        }
        if lost || self.link.hole {
            return;
        }
        let (status, mut answer) = done.unwrap_or_else(|refusal| (refusal.code, refusal.status()));
        if call.seals && status < 300 {
            self.vault.seal_all(&mut answer);
        }
        let body = Bytes::from(answer.to_string());
        let reply = ApiReply { status, retry_after: retry_after(status), body };
        out.answers.push((back, caller, Ok(reply)));
    }

    /// Whether a path leads to the picture of a static pod. Such a pod may have a next life, of which the server will
    /// not hear: an end is final to it.
    fn is_mirror(&self, path: &str) -> bool {
        let name = path.trim_end_matches("/status").rsplit('/').next();
        let mut mirrors = self.cluster.store.all("pods").filter(|pod| {
            pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some()
        });
        mirrors.any(|pod| pod["metadata"]["name"].as_str() == name)
    }

    /// The status of HTTP, and the body.
    fn answer(
        &mut self,
        at: At,
        verb: Verb,
        request: &Request,
        body: Value,
        out: &mut Out,
    ) -> Result<(u16, Value), Refusal> {
        let Request { resource, namespace, name, .. } = request;
        let place = Place { resource, namespace, name, status: request.part == "status" };
        let one = |object: Rc<Value>| (*object).clone();
        if resource.review {
            return self.review(verb, request, body);
        }
        let by = By::Agent;
        match (verb, name.as_str()) {
            (Verb::Get, "") => self.list(request, out),
            (Verb::Get, _) => {
                self.cluster.object(place).map(|object| (200, one(Rc::clone(object))))
            }
            // The past that this watch begins in is forgotten.
            (Verb::Watch, _) => {
                Err(Refusal::expired("The resourceVersion for the provided watch is too old."))
            }
            (Verb::Post, _) if request.part == "token" => {
                self.cluster.token(at, place, body).map(|token| (201, token))
            }
            (Verb::Post, "") if resource.namespaced && namespace.is_empty() => {
                Err(Refusal::no_method(resource.plural))
            }
            (Verb::Post, "") => {
                let new = self
                    .write(at, by, out, |cluster| cluster.create(at, resource, namespace, body))?;
                if resource.kind == "CertificateSigningRequest" {
                    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let soon = if self.swift { Span::ZERO } else { self.dice.millis(200, 5_000) };
                    out.wakes.push((at + soon, Wake::Sign(name)));
                }
                Ok((201, one(new)))
            }
            (_, "") | (Verb::Post, _) => Err(Refusal::no_method(resource.plural)),
            (Verb::Put, _) => {
                let new = self.write(at, by, out, |cluster| cluster.replace(place, body))?;
                Ok((200, one(new)))
            }
            (Verb::Patch, _) if !body.is_object() => Err(Refusal::bad("the patch is no object")),
            (Verb::Patch, _) => {
                let new = self.write(at, by, out, |cluster| cluster.patch(place, &body))?;
                Ok((200, one(new)))
            }
            (Verb::Delete, _) => {
                let old = self.write(at, by, out, |cluster| cluster.delete(at, place, &body))?;
                Ok((200, one(old)))
            }
        }
    }

    fn list(&mut self, request: &Request, out: &mut Out) -> Result<(u16, Value), Refusal> {
        let (resource, mut query) = (request.resource, request.query.clone());
        if !request.namespace.is_empty() {
            query.fields.push((super::request::Field::Namespace, request.namespace.clone()));
        }
        // Only who does not ask for the newest can be told of the past.
        let cached = query.version == Some(0) && query.page.is_empty();
        if self.page_most > 0 && query.limit > 0 {
            query.limit = query.limit.min(self.page_most);
        }
        let page = match self.link.lists {
            Lists::Old(changes) if cached => self.cluster.store.old_list(resource, &query, changes),
            Lists::Blank
                if resource.plural == "pods"
                    && query.field(super::request::Field::Name).is_none() =>
            {
                out.struck.push("API lists blank");
                Page { version: self.cluster.store.version(), items: Vec::new(), next: None }
            }
            Lists::Empty if cached => Page { version: 1, items: Vec::new(), next: None },
            _ => self.cluster.store.list(resource, &query)?,
        };
        let mut metadata = json!({"resourceVersion": page.version.to_string()});
        if let Some((token, left)) = page.next {
            metadata["continue"] = json!(token);
            metadata["remainingItemCount"] = json!(left);
        }
        // The items of a typed list do not repeat what they are.
        let items = page.items.iter().map(|item| {
            let mut item = (**item).clone();
            if let Value::Object(item) = &mut item {
                item.remove("kind");
                item.remove("apiVersion");
            }
            item
        });
        let items: Vec<Value> = items.collect();
        let kind = format!("{}List", resource.kind);
        let list = json!({"kind": kind, "apiVersion": resource.version, "metadata": metadata,
            "items": items});
        Ok((200, list))
    }

    fn review(
        &mut self,
        verb: Verb,
        request: &Request,
        mut body: Value,
    ) -> Result<(u16, Value), Refusal> {
        if verb != Verb::Post || !request.name.is_empty() {
            return Err(Refusal::no_method(request.resource.plural));
        }
        if !body.is_object() {
            return Err(Refusal::bad("the body is no review"));
        }
        body["status"] = match request.resource.kind {
            "TokenReview" => {
                let token = body["spec"]["token"].as_str().unwrap_or_default();
                match self.users.get(token) {
                    Some(user) => {
                        let groups = ["system:authenticated"];
                        json!({"authenticated": true, "user": {"username": user, "groups": groups}})
                    }
                    None => json!({"user": {}, "error": "invalid bearer token"}),
                }
            }
            _ => json!({"allowed": self.allows || self.grants(&body["spec"])}),
        };
        Ok((201, body))
    }

    /// Whether a user, or one of the groups, was granted what a review asks about.
    fn grants(&self, spec: &Value) -> bool {
        let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        let wanted = &spec["resourceAttributes"];
        let node = wanted["resource"] == "nodes" && wanted["name"] == *self.node;
        let deed = format!("{} {}", text(&wanted["verb"]), text(&wanted["subresource"]));
        let groups = spec["groups"].as_array().into_iter().flatten();
        let mut names = groups.chain([&spec["user"]]).map(text);
        node && names.any(|name| self.grants.contains(&(name, deed.clone())))
    }

    /// Opens a watch. False: it begins too far back, and is answered so.
    fn watch(
        &mut self,
        at: At,
        head: At,
        caller: Caller,
        request: &Request,
        seals: bool,
        out: &mut Out,
    ) -> bool {
        let mut query = request.query.clone();
        for (field, value) in [
            (super::request::Field::Namespace, &request.namespace),
            (super::request::Field::Name, &request.name),
        ] {
            if !value.is_empty() {
                query.fields.push((field, value.clone()));
            }
        }
        let resource = request.resource;
        let store = &self.cluster.store;
        let backlog: Result<Vec<Value>, Refusal> = match query.version {
            None | Some(0) => {
                let now = store.all(resource.plural).filter(|object| query.selects(object));
                Ok(now.map(|object| line("ADDED", object)).collect())
            }
            Some(version) => store.since(version).map(|changes| {
                let changes = changes.filter(|change| change.key.plural == resource.plural);
                changes
                    .filter_map(|change| Some(line(change.seen_by(&query)?, &change.object)))
                    .collect()
            }),
        };
        let expired = backlog.as_ref().err().map(|refusal| line("ERROR", &refusal.status()));
        // Of the two ways to say so, the status of HTTP is the rarer one.
        if expired.is_some() && self.dice.chance(30) {
            return false;
        }
        let timeout = query.timeout.unwrap_or_else(|| {
            Span::from_secs(self.dice.between(WATCH_SECONDS.0, WATCH_SECONDS.1))
        });
        out.wakes.push((head, Wake::Headed(caller)));
        if query.bookmarks {
            out.wakes.push((at + BOOKMARK, Wake::Bookmark(caller)));
        }
        let over = expired.is_some();
        self.watches.open(caller, Watch::new(resource, query, seals, head));
        for line in backlog.unwrap_or_else(|_| expired.into_iter().collect()) {
            self.say(at, caller, line, out);
        }
        let end = if over { at } else { at + timeout };
        out.wakes.push((end, Wake::WatchEnds(caller)));
        true
    }

    /// Sends a line of a watch.
    fn say(&mut self, at: At, caller: Caller, mut text: Value, out: &mut Out) {
        let there = at + self.trip();
        let Some(watch) = self.watches.watch(caller) else { return };
        if watch.seals {
            self.vault.seal_all(&mut text);
        }
        let text = Bytes::from(text.to_string());
        if self.link.hole {
            watch.hold(text);
        } else {
            out.lines.push((watch.arrival(there), caller, text));
        }
    }

    /// Tells the watches, and whoever looks on, of what was changed since a version.
    pub(super) fn spread(&mut self, at: At, version: u64, by: By, out: &mut Out) {
        let Ok(changes) = self.cluster.store.since(version) else { return };
        let changes: Vec<_> = changes.cloned().collect();
        for change in changes {
            for (caller, line) in self.watches.hearing(&change) {
                self.say(at, caller, line, out);
            }
            out.stored.push(Stored {
                by,
                plural: change.key.plural,
                before: change.before,
                object: change.object,
                gone: change.gone,
            });
        }
    }

    pub(super) fn end_watch(&mut self, at: At, caller: Caller, out: &mut Out) {
        let there = at + self.trip();
        let hole = self.link.hole;
        let Some(watch) = self.watches.watch(caller) else { return };
        if hole {
            watch.ended = true;
            return;
        }
        let there = watch.arrival(there);
        // Its deadline has nothing to say any more.
        self.left(caller);
        let reply = ApiReply { status: 200, retry_after: None, body: Bytes::new() };
        out.answers.push((there, caller, Ok(reply)));
    }

    pub(super) fn bookmark(&mut self, at: At, caller: Caller, out: &mut Out) {
        let version = self.cluster.store.version();
        let Some(watch) = self.watches.watch(caller) else { return };
        let text = bookmark(watch.resource, version);
        self.say(at, caller, text, out);
        out.wakes.push((at + BOOKMARK, Wake::Bookmark(caller)));
    }

    /// What the cluster makes of a request for a certificate that lies there.
    pub(super) fn sign(&mut self, at: At, name: &str, out: &mut Out) {
        let Some(object) = self.object(CSRS, "", name) else { return };
        let life = match self.signing {
            Signing::Never => return,
            _ if object["status"]["conditions"].is_array() => return,
            Signing::For(life) => Some(life),
            Signing::TooLate => Some(Span::ZERO),
            Signing::Denied | Signing::Failed => None,
        };
        let approved = json!({"type": "Approved", "status": "True", "reason": "AutoApproved"});
        let status = match (self.signing, life) {
            (_, Some(life)) => {
                let certificate = issue(object, at, life);
                json!({"conditions": [approved], "certificate": certificate})
            }
            (Signing::Denied, None) => {
                let denied = json!({"type": "Denied", "status": "True", "reason": "Stranger"});
                json!({"conditions": [denied]})
            }
            (_, None) => {
                let failed = json!({"type": "Failed", "status": "True", "reason": "SignerBroken"});
                json!({"conditions": [approved, failed]})
            }
        };
        let patch = json!({"kind": "CertificateSigningRequest", "metadata": {"name": name},
            "status": status});
        // It may have been deleted meanwhile.
        let _ = self.update(at, "status", &patch, out);
    }

    /// The approvers change their mind; what lies there is looked at again.
    pub fn set_signing(&mut self, at: At, signing: Signing, out: &mut Out) {
        self.signing = signing;
        let names = self.objects(CSRS).filter_map(|object| object["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        for name in names {
            self.sign(at, &name, out);
        }
    }
}

/// A certificate for what a request wants, dated back as signers do; base64 of PEM with nothing in it for any other.
fn issue(object: &Value, at: At, life: Span) -> String {
    let request = object["spec"]["request"].as_str().unwrap_or_default();
    let wanted = STANDARD.decode(request).ok();
    let wanted = wanted.and_then(|text| serde_json::from_slice::<Wanted>(&text).ok());
    let Some(wanted) = wanted else { return CERTIFICATE.into() };
    let now = EPOCH.0 + at.0 as i64;
    let not_before = Wall(now - BACKDATED.0 as i64);
    let not_after = Wall(now.saturating_add(life.0 as i64));
    let certificate = Certificate { wanted, not_before, not_after };
    STANDARD.encode(serde_json::to_vec(&certificate).expect("it encodes"))
}

/// Whether the request itself is wrong. What was allowed a moment ago may not be now: a pod that named a secret has gone.
fn improper(refusal: &Refusal, path: &str) -> bool {
    match refusal.code {
        400 | 405 | 422 => true,
        403 => !["/secrets", "/configmaps", "/token"].iter().any(|part| path.contains(part)),
        _ => false,
    }
}

/// The server asks for a little patience where it means to be back soon.
fn retry_after(status: u16) -> Option<Span> {
    (status == 504).then_some(Span::from_secs(1))
}
