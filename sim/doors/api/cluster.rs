//! The cluster behind the server: objects that are created, changed and deleted by the rules of their kind.

use super::merge;
use super::pods::{self, Deletion};
use super::refusal::Refusal;
use super::request::Resource;
use super::store::{Key, Store};
use crate::clock::{At, EPOCH};
use crate::dice::Dice;
use serde_json::{Value, json};
use std::rc::Rc;
use steplet_api::time::Time;

#[derive(Debug)]
pub struct Cluster {
    pub store: Store,
    dice: Dice,
    tokens: u64,
}

/// What a write is about.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub resource: &'static Resource,
    pub namespace: &'a str,
    pub name: &'a str,
    /// It changes the status, or all but the status.
    pub status: bool,
}

impl Place<'_> {
    fn key(self) -> Key {
        let (namespace, name) = (self.namespace.to_owned(), self.name.to_owned());
        Key { plural: self.resource.plural, namespace, name }
    }

    fn not_found(self) -> Refusal {
        Refusal::not_found(self.resource.plural, self.name)
    }

    fn conflict(self, why: &str) -> Refusal {
        Refusal::conflict(self.resource.plural, self.name, why)
    }
}

/// The server's clock, which is right whatever the node's shows.
pub fn time(at: At) -> Time {
    Time::from_ns(EPOCH.0 + at.0 as i64)
}

impl Cluster {
    /// A cluster as it is when its first node joins.
    pub fn new(dice: Dice) -> Cluster {
        let mut cluster = Cluster { store: Store::default(), dice, tokens: 0 };
        let service = json!({"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]});
        let objects = [
            ("Namespace", "", "default", json!({})),
            ("Namespace", "", "kube-system", json!({})),
            ("Namespace", "", "kube-node-lease", json!({})),
            ("ServiceAccount", "default", "default", json!({})),
            ("ServiceAccount", "kube-system", "default", json!({})),
            (
                "ConfigMap",
                "default",
                "kube-root-ca.crt",
                json!({"data": {"ca.crt": "a certificate"}}),
            ),
            ("Service", "default", "kubernetes", json!({"spec": service})),
        ];
        for (kind, namespace, name, mut object) in objects {
            let resource = Resource::of_kind(kind).expect("a known kind");
            object["metadata"] = json!({"name": name});
            cluster.create(At(0), resource, namespace, object).expect("an object without fault");
        }
        cluster
    }

    pub fn object(&self, place: Place<'_>) -> Result<&Rc<Value>, Refusal> {
        self.store.object(&place.key()).ok_or_else(|| place.not_found())
    }

    fn uid(&mut self) -> String {
        let mut part = |len| self.dice.hex(len);
        [part(8), part(4), part(4), part(4), part(12)].join("-")
    }

    pub fn create(
        &mut self,
        at: At,
        resource: &'static Resource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Rc<Value>, Refusal> {
        if !object.is_object() || !object["metadata"].is_object() {
            return Err(Refusal::bad("the body is no object with metadata"));
        }
        for (field, want) in [("kind", resource.kind), ("apiVersion", resource.version)] {
            let found = object[field].as_str().unwrap_or(want).to_owned();
            if found != want {
                return Err(Refusal::bad(format!("the {field} is {found}, not {want}")));
            }
            object[field] = json!(want);
        }
        let metadata = &mut object["metadata"];
        if metadata["namespace"].as_str().is_some_and(|given| given != namespace) {
            let why = "the namespace of the provided object does not match the namespace sent on \
                       the request";
            return Err(Refusal::bad(why));
        }
        if resource.namespaced {
            metadata["namespace"] = json!(namespace);
        }
        if let (None, Some(stem)) = (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            metadata["name"] = json!(format!("{stem}{}", self.dice.hex(5)));
        }
        let Some(name) = metadata["name"].as_str().filter(|name| !name.is_empty()) else {
            let why = "metadata.name: Required value: name or generateName is required";
            return Err(Refusal::invalid(resource.kind, "", why));
        };
        let name = name.to_owned();
        let place = Place { resource, namespace, name: &name, status: false };
        if self.store.object(&place.key()).is_some() {
            return Err(Refusal::exists(resource.plural, &name));
        }
        object["metadata"]["uid"] = json!(self.uid());
        object["metadata"]["creationTimestamp"] = json!(time(at).as_str());
        match resource.kind {
            "Pod" => pods::complete(&mut object)?,
            "CertificateSigningRequest" => object["status"] = json!({}),
            _ => {}
        }
        Ok(Rc::clone(&self.store.put(place.key(), object).object))
    }

    /// PUT: the object is as given now.
    pub fn replace(&mut self, place: Place<'_>, object: Value) -> Result<Rc<Value>, Refusal> {
        let old = Rc::clone(self.object(place)?);
        if object["metadata"]["name"].as_str() != Some(place.name) {
            return Err(Refusal::bad("the name of the object does not match the name on the URL"));
        }
        if object["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty()
            && place.resource.kind == "Lease"
        {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(Refusal::invalid(place.resource.kind, place.name, why));
        }
        self.write(place, &old, object)
    }

    /// A strategic merge patch.
    pub fn patch(&mut self, place: Place<'_>, patch: &Value) -> Result<Rc<Value>, Refusal> {
        let old = Rc::clone(self.object(place)?);
        let mut new = (*old).clone();
        merge::apply(&mut new, patch)?;
        if patch["metadata"].get("resourceVersion").is_none() {
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        }
        self.write(place, &old, new)
    }

    fn write(
        &mut self,
        place: Place<'_>,
        old: &Rc<Value>,
        mut new: Value,
    ) -> Result<Rc<Value>, Refusal> {
        let (was, now) = (&old["metadata"], &mut new["metadata"]);
        if now["uid"].as_str().is_some_and(|uid| Some(uid) != was["uid"].as_str()) {
            let why = format!(
                "Precondition failed: UID in precondition: {}, UID in object meta: {}",
                now["uid"], was["uid"]
            );
            return Err(place.conflict(&why));
        }
        let version = now["resourceVersion"].as_str().filter(|version| !version.is_empty());
        if version.is_some_and(|version| Some(version) != was["resourceVersion"].as_str()) {
            let why = "the object has been modified; please apply your changes to the latest \
                       version and try again";
            return Err(place.conflict(why));
        }
        // Nobody writes these.
        for field in [
            "name",
            "namespace",
            "uid",
            "creationTimestamp",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
        ] {
            keep(&mut new["metadata"], was, field);
        }
        for field in ["kind", "apiVersion"] {
            keep(&mut new, old, field);
        }
        if place.status {
            keep(&mut new, old, "spec");
            keep(&mut new["metadata"], was, "ownerReferences");
        } else if place.resource.status {
            keep(&mut new, old, "status");
        }
        if place.resource.kind == "Pod" {
            pods::check_status(old, &new)?;
            keep(&mut new["status"], &old["status"], "qosClass");
            if new["spec"] != old["spec"] {
                new["metadata"]["generation"] = next(&was["generation"]);
            }
        }
        if new == **old {
            return Ok(Rc::clone(old));
        }
        let metadata = &new["metadata"];
        let over = metadata.get("deletionTimestamp").is_some()
            && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        if over && finalizers(&new) == 0 {
            let gone = self.store.remove(&place.key(), new);
            return gone.map(|change| Rc::clone(&change.object)).ok_or_else(|| place.not_found());
        }
        Ok(Rc::clone(&self.store.put(place.key(), new).object))
    }

    /// DELETE, with its options; the object as it is then, or was last.
    pub fn delete(
        &mut self,
        at: At,
        place: Place<'_>,
        options: &Value,
    ) -> Result<Rc<Value>, Refusal> {
        let old = Rc::clone(self.object(place)?);
        for (field, name) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let wanted = options["preconditions"][field].as_str();
            if wanted.is_some_and(|wanted| Some(wanted) != old["metadata"][field].as_str()) {
                let found = &old["metadata"][field];
                return Err(place.conflict(&format!(
                    "Precondition failed: {name} in precondition: {}, {name} in object meta: {found}",
                    wanted.unwrap_or_default()
                )));
            }
        }
        let mut object = (*old).clone();
        let grace = match place.resource.kind {
            "Pod" => match pods::deletion(&old, options) {
                Deletion::Nothing => return Ok(old),
                Deletion::Now => 0,
                Deletion::Wait(grace) => grace,
            },
            _ => 0,
        };
        let metadata = &mut object["metadata"];
        if metadata.get("deletionTimestamp").is_none() && metadata["generation"].is_i64() {
            metadata["generation"] = next(&old["metadata"]["generation"]);
        }
        // A pod's own word of when it goes; what goes at once needs none.
        if place.resource.kind == "Pod" || finalizers(&old) > 0 {
            let end = At(at.0.saturating_add(grace.unsigned_abs().saturating_mul(1_000_000_000)));
            metadata["deletionTimestamp"] = json!(time(end).as_str());
            metadata["deletionGracePeriodSeconds"] = json!(grace);
        }
        if grace > 0 || finalizers(&old) > 0 {
            if object == *old {
                return Ok(old);
            }
            return Ok(Rc::clone(&self.store.put(place.key(), object).object));
        }
        let gone = self.store.remove(&place.key(), object);
        let gone = Rc::clone(&gone.ok_or_else(|| place.not_found())?.object);
        self.collect_garbage(&gone["metadata"]["uid"]);
        Ok(gone)
    }

    /// Leases and such go with the node that owns them.
    fn collect_garbage(&mut self, owner: &Value) {
        for plural in ["leases", "csinodes"] {
            let owned = |object: &&Rc<Value>| {
                let owners = object["metadata"]["ownerReferences"].as_array();
                owners.is_some_and(|owners| owners.iter().any(|one| one["uid"] == *owner))
            };
            let lost: Vec<Rc<Value>> = self.store.all(plural).filter(owned).cloned().collect();
            for object in lost {
                let text =
                    |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                let key = Key { plural, namespace: text("namespace"), name: text("name") };
                self.store.remove(&key, (*object).clone());
            }
        }
    }

    /// A token for a service account; it is not kept.
    pub fn token(
        &mut self,
        at: At,
        account: Place<'_>,
        mut request: Value,
    ) -> Result<Value, Refusal> {
        self.object(account)?;
        if !request.is_object() {
            return Err(Refusal::bad("the body is no TokenRequest"));
        }
        let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(3_600);
        if seconds < 600 {
            let why = "spec.expirationSeconds: may not specify a duration less than 10 minutes";
            return Err(Refusal::invalid("TokenRequest", account.name, why));
        }
        let bound = request["spec"]["boundObjectRef"].clone();
        if bound["kind"] == "Pod" {
            let name = bound["name"].as_str().unwrap_or_default();
            let resource = Resource::of_kind("Pod").expect("a known kind");
            let pod = Place { resource, name, ..account };
            if self.object(pod)?["metadata"]["uid"] != bound["uid"] {
                return Err(pod.conflict("the UID in the bound object reference does not match"));
            }
        }
        self.tokens += 1;
        let end = At(at.0.saturating_add(seconds.unsigned_abs().saturating_mul(1_000_000_000)));
        request["kind"] = json!("TokenRequest");
        request["apiVersion"] = json!("authentication.k8s.io/v1");
        request["metadata"] = json!({"name": account.name, "namespace": account.namespace,
            "creationTimestamp": time(at).as_str()});
        request["spec"]["expirationSeconds"] = json!(seconds);
        default_audience(&mut request["spec"]);
        let token = format!("eyJhbGciOiJSUzI1NiJ9.{}-{}.sig", account.name, self.tokens);
        request["status"] = json!({"token": token, "expirationTimestamp": time(end).as_str()});
        Ok(request)
    }
}

fn default_audience(spec: &mut Value) {
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!(["https://kubernetes.default.svc"]);
    }
}

fn finalizers(object: &Value) -> usize {
    object["metadata"]["finalizers"].as_array().map_or(0, Vec::len)
}

fn next(generation: &Value) -> Value {
    json!(generation.as_i64().unwrap_or(0) + 1)
}

/// A field is as it was.
fn keep(new: &mut Value, old: &Value, field: &str) {
    let Value::Object(new) = new else { return };
    match old.get(field) {
        Some(value) => new.insert(field.to_owned(), value.clone()),
        None => new.remove(field),
    };
}
