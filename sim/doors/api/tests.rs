//! The server, driven by calls as the agent's door would.

use super::link::{Lists, Trouble};
use super::*;
use crate::agenda::Agenda;
use serde_json::json;
use steplet_core::effect::{Lane, Verb};

const PODS: &str = "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge-1";

enum Due {
    Wake(Wake),
    Answer(Caller, Answer),
    Line(Caller, Bytes),
}

/// A server, and time that passes.
struct Bench {
    server: ApiServer,
    at: At,
    agenda: Agenda<Due>,
    callers: u64,
    answers: BTreeMap<Caller, Answer>,
    lines: BTreeMap<Caller, Vec<Value>>,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            server: ApiServer::new("edge-1", false, Dice::new(7)),
            at: At(0),
            agenda: Agenda::default(),
            callers: 0,
            answers: BTreeMap::new(),
            lines: BTreeMap::new(),
        }
    }

    fn take(&mut self, out: Out) {
        for (at, wake) in out.wakes {
            self.agenda.plan(at, Due::Wake(wake));
        }
        for (at, caller, line) in out.lines {
            self.agenda.plan(at, Due::Line(caller, line));
        }
        for (at, caller, answer) in out.answers {
            self.agenda.plan(at, Due::Answer(caller, answer));
        }
    }

    fn with<T>(&mut self, deed: impl FnOnce(&mut ApiServer, At, &mut Out) -> T) -> T {
        let mut out = Out::default();
        let done = deed(&mut self.server, self.at, &mut out);
        self.take(out);
        done
    }

    fn send(&mut self, verb: Verb, path: &str, body: Value, seals: bool) -> Caller {
        self.callers += 1;
        let caller = Caller(self.callers);
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        let (path, within) = (path.to_owned(), Span::from_secs(10));
        let call = ApiCall { verb, path, body, within, lane: Lane::Main, seals, secret: None };
        self.with(|server, at, out| server.call(at, caller, call, out));
        caller
    }

    fn pass(&mut self, span: Span) {
        let end = self.at + span;
        while self.agenda.next_at().is_some_and(|at| at <= end) {
            let Some((at, due)) = self.agenda.pop() else { break };
            self.at = at;
            match due {
                Due::Wake(wake) => self.with(|server, at, out| server.wake(at, wake, out)),
                Due::Line(caller, line) if !self.answers.contains_key(&caller) => {
                    let line = serde_json::from_slice(&line).expect("a line is JSON");
                    self.lines.entry(caller).or_default().push(line);
                }
                Due::Answer(caller, answer) if !self.answers.contains_key(&caller) => {
                    self.server.left(caller);
                    self.answers.insert(caller, answer);
                }
                Due::Line(..) | Due::Answer(..) => {}
            }
        }
        self.at = end;
    }

    /// The status and the body of an answer.
    fn ask(&mut self, verb: Verb, path: &str, body: Value) -> (u16, Value) {
        let caller = self.send(verb, path, body, false);
        self.pass(Span::from_secs(1));
        let reply = self.answers[&caller].clone().expect("an answer");
        (reply.status, serde_json::from_slice(&reply.body).expect("it is JSON"))
    }

    fn watch(&mut self, path: &str) -> Caller {
        let caller = self.send(Verb::Watch, &format!("{path}&watch=true"), Value::Null, false);
        self.pass(Span::from_secs(1));
        caller
    }

    /// Types and names of the lines of a watch.
    fn heard(&self, caller: Caller) -> Vec<String> {
        let lines = self.lines.get(&caller).into_iter().flatten();
        let text = |line: &Value| {
            let name = line["object"]["metadata"]["name"].as_str().unwrap_or("-");
            format!("{} {name}", line["type"].as_str().unwrap_or_default())
        };
        lines.map(text).collect()
    }

    fn create(&mut self, object: Value) {
        self.with(|server, at, out| server.create(at, object, out)).expect("it is created");
    }

    fn create_pod(&mut self, name: &str) -> String {
        self.create(pod(name));
        let pod = self.server.object("pods", "default", name).expect("it is there");
        pod["metadata"]["uid"].as_str().expect("it has a uid").to_owned()
    }
}

fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": "edge-1", "terminationGracePeriodSeconds": 20,
        "containers": [{"name": "app", "image": "app:v1"}]}})
}

fn version(list: &Value) -> String {
    list["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

#[test]
fn a_pod_is_deleted_in_two_steps() {
    let mut bench = Bench::new();
    let uid = bench.create_pod("web");
    let (status, list) = bench.ask(Verb::Get, &format!("{PODS}&resourceVersion=0"), Value::Null);
    let item = &list["items"][0];
    assert_eq!((status, item["status"]["phase"].as_str()), (200, Some("Pending")));
    assert!(item.get("kind").is_none() && item["metadata"]["generation"] == 1);
    let watch = bench.watch(&format!("{PODS}&resourceVersion={}", version(&list)));
    let what = ("pods", "default", "web");
    bench.with(|server, at, out| server.delete(at, what, Some(5), out)).expect("it is there");
    bench.pass(Span::from_secs(1));
    assert_eq!(bench.heard(watch), ["MODIFIED web"]);
    let metadata = &bench.lines[&watch][0]["object"]["metadata"];
    assert_eq!(metadata["deletionGracePeriodSeconds"], 5);
    assert_eq!(metadata["deletionTimestamp"], "2026-11-30T12:00:07Z");
    let path = "/api/v1/namespaces/default/pods/web";
    let options = |uid: &str| json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(bench.ask(Verb::Delete, path, options("another")).0, 409);
    assert_eq!(bench.ask(Verb::Delete, path, options(&uid)).0, 200);
    assert_eq!(bench.ask(Verb::Delete, path, options(&uid)).0, 404);
    assert_eq!(bench.heard(watch), ["MODIFIED web", "DELETED web"]);
}

#[test]
fn a_finalizer_keeps_what_is_deleted() {
    let mut bench = Bench::new();
    let mut object = pod("job");
    object["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    bench.create(object);
    let path = "/api/v1/namespaces/default/pods/job";
    assert_eq!(bench.ask(Verb::Delete, path, json!({"gracePeriodSeconds": 0})).0, 200);
    let (_, left) = bench.ask(Verb::Get, path, Value::Null);
    assert_eq!(left["metadata"]["deletionGracePeriodSeconds"], 0);
    let patch = json!({"kind": "Pod", "metadata": {"name": "job",
        "$deleteFromPrimitiveList/finalizers": ["batch.kubernetes.io/job-tracking"]}});
    bench.with(|server, at, out| server.update(at, "", &patch, out)).expect("it is there");
    assert_eq!(bench.ask(Verb::Get, path, Value::Null).0, 404);
}

#[test]
fn a_status_is_patched_and_nothing_else() {
    let mut bench = Bench::new();
    let uid = bench.create_pod("web");
    let path = "/api/v1/namespaces/default/pods/web/status";
    let patch = json!({"metadata": {"uid": uid}, "spec": {"nodeName": "other"},
        "status": {"phase": "Running", "qosClass": null,
            "conditions": [{"type": "Ready", "status": "True"}]}});
    let (status, first) = bench.ask(Verb::Patch, path, patch.clone());
    assert_eq!((status, first["status"]["phase"].as_str()), (200, Some("Running")));
    assert_eq!(first["spec"]["nodeName"], "edge-1");
    assert_eq!(first["status"]["qosClass"], "BestEffort");
    let (_, again) = bench.ask(Verb::Patch, path, patch);
    assert_eq!(version(&again), version(&first), "no change is no new version");
    let other = json!({"metadata": {"uid": "another"}, "status": {"phase": "Failed"}});
    let (status, refusal) = bench.ask(Verb::Patch, path, other);
    assert_eq!((status, refusal["reason"].as_str()), (409, Some("Conflict")));
    let path = "/api/v1/nodes/edge-1/status";
    let (status, refusal) = bench.ask(Verb::Patch, path, json!({"status": {}}));
    assert_eq!((status, refusal["kind"].as_str()), (404, Some("Status")));
}

#[test]
fn a_lease_is_created_once_and_renewed_in_turn() {
    let mut bench = Bench::new();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let one = format!("{leases}/edge-1");
    let lease = json!({"metadata": {"name": "edge-1"}, "spec": {"leaseDurationSeconds": 40}});
    assert_eq!(bench.ask(Verb::Get, &one, Value::Null).0, 404);
    let (status, mut made) = bench.ask(Verb::Post, leases, lease.clone());
    assert_eq!(status, 201);
    assert_eq!(bench.ask(Verb::Post, leases, lease.clone()).0, 409);
    assert_eq!(bench.ask(Verb::Put, &one, lease).0, 422, "a lease is not updated blindly");
    let old = made.clone();
    made["spec"]["renewTime"] = json!("2026-11-30T12:00:05.000000Z");
    assert_eq!(bench.ask(Verb::Put, &one, made).0, 200);
    assert_eq!(bench.ask(Verb::Put, &one, old).0, 409, "stale");
}

#[test]
fn a_node_is_created_watched_and_deleted_with_its_lease() {
    let mut bench = Bench::new();
    let node = json!({"metadata": {"name": "edge-1"}, "status": {"capacity": {"cpu": "4"}}});
    let (status, made) = bench.ask(Verb::Post, "/api/v1/nodes", node.clone());
    assert_eq!((status, made["status"]["capacity"]["cpu"].as_str()), (201, Some("4")));
    assert_eq!(bench.ask(Verb::Post, "/api/v1/nodes", node).0, 409);
    let owner = json!([{"kind": "Node", "name": "edge-1", "uid": made["metadata"]["uid"]}]);
    let lease = json!({"metadata": {"name": "edge-1", "ownerReferences": owner}, "spec": {}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(bench.ask(Verb::Post, leases, lease).0, 201);
    let watch = bench.watch("/api/v1/nodes?fieldSelector=metadata.name%3Dedge-1&resourceVersion=0");
    let what = ("nodes", "", "edge-1");
    bench.with(|server, at, out| server.delete(at, what, None, out)).expect("it is there");
    bench.pass(Span::from_secs(1));
    assert_eq!(bench.heard(watch), ["ADDED edge-1", "DELETED edge-1"]);
    assert_eq!(bench.ask(Verb::Get, &format!("{leases}/edge-1"), Value::Null).0, 404);
}

#[test]
fn a_watch_ends_with_its_time_and_says_bookmarks() {
    let mut bench = Bench::new();
    let path = format!("{PODS}&allowWatchBookmarks=true&timeoutSeconds=90");
    let watch = bench.watch(&path);
    bench.pass(Span::from_secs(70));
    assert_eq!(bench.heard(watch), ["BOOKMARK -"]);
    assert!(!bench.answers.contains_key(&watch), "its deadline is for its head only");
    bench.pass(Span::from_secs(30));
    let end = bench.answers[&watch].clone().expect("an end");
    assert_eq!((end.status, end.body.len()), (200, 0));
}

#[test]
fn what_is_forgotten_is_expired_in_both_ways() {
    let mut bench = Bench::new();
    bench.create_pod("web");
    let (_, list) = bench.ask(Verb::Get, PODS, Value::Null);
    bench.server.expire();
    let (mut lines, mut statuses) = (0, 0);
    for _ in 0..30 {
        let watch = bench.watch(&format!("{PODS}&resourceVersion={}", version(&list)));
        let reply = bench.answers[&watch].clone().expect("it is over");
        match reply.status {
            410 => statuses += 1,
            _ => {
                let line = &bench.lines[&watch][0];
                assert_eq!(
                    (line["type"].as_str(), &line["object"]["code"]),
                    (Some("ERROR"), &json!(410))
                );
                lines += 1;
            }
        }
    }
    assert!(lines > 0 && statuses > 0, "{lines} {statuses}");
    let page = format!("{PODS}&continue=page-000001");
    assert_eq!(bench.ask(Verb::Get, &page, Value::Null).0, 410);
}

#[test]
fn a_list_comes_in_pages() {
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.create_pod(name);
    }
    bench.server.page_most = 2;
    let (_, list) = bench.ask(Verb::Get, &format!("{PODS}&limit=500"), Value::Null);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(list["metadata"]["remainingItemCount"], 1);
    let token = list["metadata"]["continue"].as_str().expect("there is more");
    let next = format!("{PODS}&limit=500&continue={token}");
    let (_, rest) = bench.ask(Verb::Get, &next, Value::Null);
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
}

#[test]
fn a_cache_may_tell_of_the_past_and_a_fresh_read_does_not() {
    let mut bench = Bench::new();
    bench.create_pod("a");
    bench.create_pod("b");
    let count = |bench: &mut Bench, path: &str| {
        let (_, list) = bench.ask(Verb::Get, path, Value::Null);
        list["items"].as_array().map_or(0, Vec::len)
    };
    let cached = format!("{PODS}&resourceVersion=0");
    bench.server.link.lists = Lists::Old(1);
    assert_eq!((count(&mut bench, &cached), count(&mut bench, PODS)), (1, 2));
    bench.server.link.lists = Lists::Empty;
    assert_eq!((count(&mut bench, &cached), count(&mut bench, PODS)), (0, 2));
}

#[test]
fn trouble_on_the_way() {
    let mut bench = Bench::new();
    let path = "/api/v1/nodes/edge-1";
    let answer = |bench: &mut Bench| {
        let caller = bench.send(Verb::Get, path, Value::Null, false);
        bench.pass(Span::from_secs(11));
        bench.answers[&caller].clone().map(|reply| (reply.status, reply.retry_after))
    };
    assert_eq!(answer(&mut bench), Ok((404, None)));
    let retry_after = Some(Span::from_secs(3));
    let trouble = Trouble { code: 429, retry_after, share: 100, subject: String::new() };
    bench.server.link.trouble = Some(trouble);
    assert_eq!(answer(&mut bench), Ok((429, retry_after)));
    bench.server.link = Link { lost: 100, ..Link::default() };
    assert_eq!(answer(&mut bench), Err("context deadline exceeded".into()));
    bench.server.link = Link { slow_by: Span::from_secs(60), ..Link::default() };
    let slow: Vec<bool> = (0..10).map(|_| answer(&mut bench).is_ok()).collect();
    assert!(slow.contains(&false), "some come too late");
    bench.server.link = Link::default();
    bench.pass(Span::from_secs(300));
    let watch = bench.watch(&format!("{PODS}&resourceVersion=0"));
    bench.with(|server, at, out| server.go_down(at, out));
    bench.pass(Span::from_secs(1));
    assert_eq!(bench.answers[&watch], Err("unexpected EOF".into()));
    assert!(answer(&mut bench).is_err_and(|why| why.ends_with("connection refused")));
}

#[test]
fn a_black_hole_says_nothing_and_gives_back_what_it_held() {
    let mut bench = Bench::new();
    let watch = bench.watch(&format!("{PODS}&resourceVersion=0"));
    bench.server.link.hole = true;
    bench.create_pod("web");
    let caller = bench.send(Verb::Get, "/api/v1/nodes/edge-1", Value::Null, false);
    bench.pass(Span::from_secs(9));
    assert!(!bench.answers.contains_key(&caller) && bench.heard(watch).is_empty());
    bench.pass(Span::from_secs(2));
    assert_eq!(bench.answers[&caller], Err("context deadline exceeded".into()));
    bench.with(|server, at, out| server.close_hole(at, out));
    bench.pass(Span::from_secs(1));
    assert_eq!(bench.heard(watch), ["ADDED web"]);
}

#[test]
fn lines_arrive_in_order_however_slow_the_way() {
    let mut bench = Bench::new();
    let watch = bench.watch(&format!("{PODS}&resourceVersion=0"));
    bench.server.link.slow_by = Span::from_secs(5);
    let names: Vec<String> = (0..20).map(|n| format!("pod-{n:02}")).collect();
    for name in &names {
        bench.create_pod(name);
    }
    bench.pass(Span::from_secs(20));
    let want: Vec<String> = names.iter().map(|name| format!("ADDED {name}")).collect();
    assert_eq!(bench.heard(watch), want);
}

#[test]
fn secrets_and_tokens_are_sealed() {
    let mut bench = Bench::new();
    let data = json!({"a": "eA==", "b": "eQ=="});
    bench.create(json!({"kind": "Secret", "metadata": {"name": "key"}, "data": data}));
    let mut object = pod("web");
    object["spec"]["volumes"] = json!([{"name": "key", "secret": {"secretName": "key"}}]);
    bench.create(object);
    let uid =
        bench.server.object("pods", "default", "web").expect("there")["metadata"]["uid"].clone();
    let mut ask = |verb, path: &str, body| {
        let caller = bench.send(verb, path, body, true);
        bench.pass(Span::from_secs(1));
        let reply = bench.answers[&caller].clone().expect("an answer");
        serde_json::from_slice::<Value>(&reply.body).expect("it is JSON")
    };
    let path = "/api/v1/namespaces/default/secrets/key";
    assert_eq!(ask(Verb::Get, path, Value::Null)["data"], json!({"a": 1, "b": 2}));
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let bound = json!({"kind": "Pod", "name": "web", "uid": uid});
    let token = ask(Verb::Post, path, json!({"spec": {"boundObjectRef": bound}}));
    assert_eq!(token["status"]["token"], 3);
    assert_eq!(token["spec"]["audiences"], json!(["https://kubernetes.default.svc"]));
    let path = "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dkey&watch=1";
    let caller = bench.send(Verb::Watch, path, Value::Null, true);
    bench.pass(Span::from_secs(1));
    assert_eq!(bench.lines[&caller][0]["object"]["data"]["b"], 2);
}

#[test]
fn reviews_and_certificates() {
    let mut bench = Bench::new();
    bench.server.users.insert("t".into(), "admin".into());
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (status, review) = bench.ask(Verb::Post, path, json!({"spec": {"token": "t"}}));
    assert_eq!((status, review["status"]["user"]["username"].as_str()), (201, Some("admin")));
    let (_, review) = bench.ask(Verb::Post, path, json!({"spec": {"token": "u"}}));
    assert!(review["status"].get("authenticated").is_none());
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(bench.ask(Verb::Post, path, json!({"spec": {}})).1["status"]["allowed"], true);
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"metadata": {"generateName": "csr-"}, "spec": {"request": "eA=="}});
    let (_, made) = bench.ask(Verb::Post, path, request);
    bench.pass(Span::from_secs(6));
    let path = format!("{path}/{}", made["metadata"]["name"].as_str().expect("a name"));
    assert!(bench.ask(Verb::Get, &path, Value::Null).1["status"]["certificate"].is_string());
}
