//! Tables. What is wanted of YAML was read off sigs.k8s.io/yaml 1.6, run on the same texts.

use super::*;

fn json(text: &[u8]) -> String {
    match to_json(text, Limits::FILE) {
        Ok(document) => String::from_utf8(document.json).unwrap(),
        Err(error) => format!("error at {}:{}", error.line, error.column),
    }
}

/// Rows of `input => want`, split at the last arrow.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().map(|row| row.rsplit_once(" => ").expect("a row has an arrow"))
}

/// A plain scalar is what Go says, as a value and as a key.
#[test]
fn scalars() {
    let table = include_str!("../../../fixtures/configs/yaml-scalars.txt");
    for (scalar, want) in rows(table) {
        let text = format!("a: {scalar}");
        let want =
            if want == "error" { "error at 1:4".into() } else { format!("{{\"a\":{want}}}") };
        assert_eq!(json(text.as_bytes()), want, "{scalar}");
    }
    assert!(rows(table).count() > 100);
}

#[test]
fn keys() {
    let table = "y => true\nno => false\n1 => 1\n0x10 => 16\n1.5 => 1.5\n1e3 => 1000\n1e20 => 1e+20
123456789.5 => 1.2345679e+08\n0.00001 => 1e-05\n.inf => .inf\n2001-1-1 => 2001-1-1\n'1' => 1
!!str 1 => 1";
    for (key, want) in rows(table) {
        assert_eq!(json(format!("{key}: v").as_bytes()), format!("{{\"{want}\":\"v\"}}"), "{key}");
    }
    for key in ["~", "null", "[a]"] {
        assert_eq!(json(format!("{key}: v").as_bytes()), "error at 1:1", "{key}");
    }
}

#[test]
fn documents() {
    let table: &[(&str, &str)] = &[
        ("", "null"),
        ("# only a comment\n", "null"),
        ("---\n...\n", "null"),
        ("--- a", "\"a\""),
        ("[1, 2]", "[1,2]"),
        ("a: 1\n---\nb: 2\n", r#"{"a":1}"#),
        ("a: 1\n...\nrest", r#"{"a":1}"#),
        ("b: 1\na: 2\n", r#"{"a":2,"b":1}"#),
        ("\u{feff}a: 1", r#"{"a":1}"#),
        ("a: 1\r\nb:\r\n- c\r\n", r#"{"a":1,"b":["c"]}"#),
        ("a:\t1\nb: x\t# c\n", r#"{"a":1,"b":"x"}"#),
        ("spec:\n  a: [\n    1,\n]\n", r#"{"spec":{"a":[1]}}"#),
        ("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#),
        ("a: |\n  no newline at the end", r#"{"a":"no newline at the end"}"#),
        ("a: >-\n  x\n  y\n\n  z\n", r#"{"a":"x y\nz"}"#),
        ("a: x#y #z", r#"{"a":"x#y"}"#),
        ("a: 'it''s'\nb: \"\\x41\\u263a\"", r#"{"a":"it's","b":"A☺"}"#),
        ("x: &x {q: 1}\nz: *x", r#"{"x":{"q":1},"z":{"q":1}}"#),
        ("&k a: *k", r#"{"a":"a"}"#),
        ("<<: {a: 2, b: 3}\na: 1", r#"{"a":1,"b":3}"#),
        ("a: 1\n<<: {a: 2, b: 3}", r#"{"a":2,"b":3}"#),
        (
            "p: &p {a: 1}\nq: &q {a: 5, c: 1}\nr:\n  <<: [*p, *q]\n  b: 2",
            r#"{"p":{"a":1},"q":{"a":5,"c":1},"r":{"a":1,"b":2,"c":1}}"#,
        ),
        ("'<<': x", r#"{"<<":"x"}"#),
        (
            "a: !!str 7\nb: !!int '7'\nc: !!float 7\nd: !!bool 'yes'",
            r#"{"a":"7","b":7,"c":7,"d":true}"#,
        ),
        ("a: !!binary |\n  aGVs\n  bG8=\nb: !!binary /w==", r#"{"a":"hello","b":"�"}"#),
        ("a: !app 7\nb: ! 7\nc: !<tag:yaml.org,2002:str> 7", r#"{"a":"7","b":"7","c":"7"}"#),
        ("a: !!set {x}", r#"{"a":{"x":null}}"#),
        ("a: 2001-12-14t21:59:43.10-05:00", r#"{"a":"2001-12-14t21:59:43.10-05:00"}"#),
        // A brace makes it JSON.
        ("  {\"b\": 1e3, \"a\": [0.50, \"\\ud83d\\ude00\"]}", r#"{"a":[0.50,"😀"],"b":1e3}"#),
        ("{\"a\":\n1,\t\"a\": 2}", r#"{"a":2}"#),
    ];
    for (text, want) in table {
        assert_eq!(json(text.as_bytes()), *want, "{text:?}");
    }
    assert_eq!(json(b"\xff\xfea\0:\0 \0y\0"), r#"{"a":true}"#);
    assert_eq!(json(b"\xfe\xff\0a\0:\0 \x01\x00"), r#"{"a":"Ā"}"#);
}

#[test]
fn broken_texts() {
    let table: &[(&[u8], &str)] = &[
        (b"a: b: c", "error at 1:5"),
        (b"a: 1\n b: 2", "error at 2:3"),
        (b"a: [1, 2", "error at 1:4"),
        (b"a: 'x", "error at 1:4"),
        (b"a:\n\t- 1", "error at 2:2"),
        (b"a: @x", "error at 1:4"),
        (b"ok: 1\na: {b: c}}", "error at 2:10"),
        (b"a: *b", "error at 1:4"),
        (b"a: &a [*a]", "error at 1:8"),
        (b"a: \x07", "error at 1:4"),
        (b"a: 1\nbc\xff: 2", "error at 2:3"),
        (b"\xff\xfe\0\xd8", "error at 1:1"),
        (b"a: 1\n<<: 3", "error at 2:5"),
        (b"a: !!int 7.5", "error at 1:10"),
        (b"a: !!null x", "error at 1:11"),
        (b"a: !!binary '@@@@'", "error at 1:13"),
        (b"a: !!binary AB=C", "error at 1:13"),
        (b"{\"a\": }", "error at 1:7"),
        (b"{a: b}", "error at 1:2"),
        (b"{\"a\": 1}\n}", "error at 2:1"),
    ];
    for (text, want) in table {
        assert_eq!(json(text), *want, "{:?}", String::from_utf8_lossy(text));
    }
    let error = to_json(b"a:\n  b: 1\n  c: d: e\n", Limits::FILE).unwrap_err();
    assert!(error.to_string().starts_with("line 3, column 7: "), "{error}");
}

#[test]
fn hostile_texts_are_bounded() {
    let small = Limits { bytes: 1 << 20, values: 5_000, depth: 100 };
    let laughs = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &('b'..='h')
            .map(|c| {
                let before = (c as u8 - 1) as char;
                format!("{c}: &{c} [{}]\n", vec![format!("*{before}"); 9].join(","))
            })
            .collect::<String>();
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 16), ["*a"].repeat(100).join(","));
    let merges = format!(
        "a: &a {{{}}}\nb: [{}]",
        ["k"; 2000]
            .iter()
            .enumerate()
            .map(|(i, k)| format!("{k}{i}: 1"))
            .collect::<Vec<_>>()
            .join(","),
        "{<<: *a},".repeat(1000)
    );
    let cases = [
        (format!("a: {}{}", "[".repeat(101), "]".repeat(101)), "nested deeper"),
        ("{\"a\": ".to_owned() + &"[".repeat(101) + &"]".repeat(101) + "}", "nested deeper"),
        (format!("a: &a {}{}\nb: *a", "[".repeat(60), "]".repeat(60)), ""),
        (format!("a: &a {0}{1}\nb: {0}*a{1}", "[".repeat(60), "]".repeat(60)), "nested deeper"),
        (laughs, "expand to more than 5000 values"),
        (long, "expand to more text"),
        (merges, "more than 5000 values"),
        (format!("a: [{}]", "1,".repeat(6_000)), "more than 5000 values"),
        (format!("{{\"a\": [{}1]}}", "1,".repeat(6_000)), "more than 5000 values"),
        ("#".repeat((1 << 20) + 1), "larger than"),
    ];
    for (text, want) in cases {
        let what = to_json(text.as_bytes(), small).map_or_else(|e| e.what, |_| String::new());
        assert!(what.contains(want) && what.is_empty() == want.is_empty(), "{want}: {what}");
    }
}

#[test]
fn duplicates_are_told_with_their_place() {
    let check = |text: &str, want: &[(&str, u32)]| {
        let document = to_json(text.as_bytes(), Limits::FILE).unwrap();
        let got: Vec<_> = document.duplicates.iter().map(|d| (&*d.path, d.mark.line)).collect();
        assert_eq!(got, want, "{text:?}");
    };
    check("a: 1\nb: 2\na: 3\n", &[("a", 3)]);
    check(
        "a:\n- b: {x.y: 1, x.y: 2}\n- yes: 1\n  true: 2",
        &[("a[0].b[x.y]", 2), ("a[1].true", 4)],
    );
    check("x: &x {a: 1}\ny: {<<: *x, a: 2}", &[]);
    check("{\"a\": {\"b\": 1,\n \"b\": 2},\n\"a\": 3}", &[("a.b", 2), ("a", 3)]);
}

#[test]
fn lines() {
    let yaml = "kind: Pod\nspec:\n  containers:\n  - name: a\n    mode: 0644\n  - \
                name: b\n    on: yes\n\
                metadata: {labels: {x.y/z: 1}}\nalias: &q [1]\nuse: *q\n";
    let json = "{\"kind\": \"Pod\",\n \"spec\": {\"containers\": [\n  {\"mode\": 420},\n  7]}}";
    let check = |text: &str, path: &str, want: Option<(u32, u32)>| {
        let document = to_json(text.as_bytes(), Limits::FILE).unwrap();
        let got = document.lines.find(path).map(|mark| (mark.line, mark.column));
        assert_eq!(got, want, "{path}");
    };
    check(yaml, "", Some((1, 1)));
    check(yaml, "kind", Some((1, 1)));
    check(yaml, "/spec/containers/1/name", Some((6, 5)));
    check(yaml, "spec.containers[1].name", Some((6, 5)));
    check(yaml, "spec.containers[1].true", Some((7, 5)));
    check(yaml, "metadata.labels[x.y/z]", Some((8, 21)));
    check(yaml, "/metadata/labels/x.y~1z", Some((8, 21)));
    check(yaml, "use", Some((10, 1)));
    check(yaml, "use[0]", Some((9, 12)));
    check(yaml, "spec.containers[2]", None);
    check(yaml, "kind.x", None);
    check(json, "spec", Some((2, 2)));
    check(json, "spec.containers[0].mode", Some((3, 4)));
    check(json, "spec.containers[1]", Some((4, 3)));

    let document = to_json(yaml.as_bytes(), Limits::FILE).unwrap();
    assert_eq!(document.lines.nearest("spec.containers[1].image").line, 6);
    assert_eq!(document.lines.source("spec.containers[0].mode"), Some("0644"));
    assert_eq!(document.lines.source("spec.containers[1].true"), Some("yes"));
    assert_eq!(document.lines.source("kind"), None);
}

/// k/k#33475, ktmpl#22: the file modes that YAML 1.2 parsers misread.
#[test]
fn file_modes() {
    for (mode, want) in [
        ("0644", "420"),
        ("0o644", "420"),
        ("420", "420"),
        ("\"0644\"", "\"0644\""),
        ("0008", "8"),
        ("644", "644"),
    ] {
        assert_eq!(
            json(format!("defaultMode: {mode}").as_bytes()),
            format!("{{\"defaultMode\":{want}}}")
        );
    }
}

/// k/k#79950: amounts reach the reader of quantities as they were written, or as the same number.
#[test]
fn amounts() {
    for (amount, want) in [
        ("128m", "\"128m\""),
        ("5000000m", "\"5000000m\""),
        ("1.1Gi", "\"1.1Gi\""),
        ("1G", "\"1G\""),
        ("0.0005", "0.0005"),
        ("-1", "-1"),
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("100M", "\"100M\""),
        ("0.1", "0.1"),
        ("010", "8"),
        ("\"1e3\"", "\"1e3\""),
    ] {
        assert_eq!(json(format!("memory: {amount}").as_bytes()), format!("{{\"memory\":{want}}}"));
    }
}

/// bottlerocket#1396: what a writer leaves behind for a moment is an error or lacks its end, at every cut.
#[test]
fn half_written_manifests() {
    let whole =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers: [{name: \"c\"}]";
    let full = json(whole.as_bytes());
    assert!(full.contains("containers"));
    for end in 0..whole.len() {
        assert_ne!(json(&whole.as_bytes()[..end]), full, "{end}");
    }
    let half = r#"{"kind": "Pod", "spec": {"containers": [{"na"#;
    assert_eq!(json(half.as_bytes()), format!("error at 1:{}", half.len()));
}

#[test]
fn lines_of_long_keys_are_left_out() {
    let long = "k".repeat(1 << 20);
    let text = format!("{{\"a\":[1],\"{long}\":[{}1]}}", "1,".repeat(100_000));
    let lines = to_json(text.as_bytes(), Limits::FILE).unwrap().lines.all(10_000);
    assert_eq!(lines, [("a".to_owned(), 1), ("a[0]".to_owned(), 1)]);
    let wide = format!("[{}1]", "1,".repeat(100_000));
    assert_eq!(to_json(wide.as_bytes(), Limits::FILE).unwrap().lines.all(10).len(), 10);
}
