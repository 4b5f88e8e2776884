//! The floor plan as a test: who may import whom, where each foreign crate
//! lives, what a `wire/` folder may know, how long a file may be; and that the
//! pages name tests and caps that exist.
//!
//! ARCHITECTURE.md explains the plan; this file is what enforces it. A room on
//! the plan need not exist yet, but one that exists must be on it.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// What any protocol room may import.
const PROTOCOL: &[&str] = &["name", "http", "store", "upstream", "policy", "cache"];

/// Room and what it may import.
const PLAN: &[(&str, &[&str])] = &[
    ("name", &[]),
    ("http", &["name"]),
    ("policy", &["name"]),
    ("store", &["name", "http"]),
    ("upstream", &["name", "http"]),
    ("cluster", &["name", "http"]),
    ("cache", &["name", "http", "store", "upstream", "cluster", "policy"]),
    ("git", PROTOCOL),
    ("oci", PROTOCOL),
    ("helm", PROTOCOL),
    ("lfs", PROTOCOL),
    ("raw", PROTOCOL),
    ("hooks", PROTOCOL),
    ("artifact", &["name", "http", "store", "upstream", "policy", "cache", "git", "oci", "helm", "lfs"]),
    ("front", &["name", "http"]),
    ("admin", &["name", "http", "store", "upstream", "cluster", "cache"]),
    ("agent", &["name", "store"]),
    ("conformance", &[]),
];

/// Foreign crate (a `*` stands for any ending) and the one room that may use it.
const HOMES: &[(&str, &str)] =
    &[("gix*", "git"), ("oci-client", "oci"), ("cacache", "store"), ("governor", "upstream")];

/// What the text of a `wire/` file may not mention: it knows only bytes.
const NOT_IN_WIRE: &[&str] = &[
    "async ",
    "tokio",
    "std::fs",
    "std::net",
    "std::io::Read",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "Duration",
];

/// The longest a file may be.
const LINES: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file below `dir` that somebody wrote.
fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let generated = matches!(name, "target" | "bin" | "corpus" | "artifacts") || name.starts_with('.');
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !generated {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&root(), &mut found);
    let written = ["rs", "go", "py", "sh", "toml"];
    found.retain(|path| path.extension().is_some_and(|end| written.iter().any(|name| end == *name)));
    found
}

/// A member of the workspace: its room and the crates it imports.
struct Member {
    room: String,
    imports: BTreeSet<String>,
}

fn members() -> Vec<Member> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let list = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let paths = list.split(',').map(|path| path.trim().trim_matches('"')).filter(|path| !path.is_empty());
    paths
        .filter(|path| *path != "proxy") // the assembly may import all
        .map(|path| {
            let room = path.rsplit('/').next().unwrap().to_owned();
            Member { room, imports: imports(&root().join(path).join("Cargo.toml")) }
        })
        .collect()
}

fn imports(manifest: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(manifest).unwrap();
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            inside = section.trim_end_matches(']').ends_with("dependencies");
        } else if inside && let Some((name, _)) = line.split_once('=') {
            let name = name.trim().trim_end_matches(".workspace");
            found.insert(name.to_owned());
        }
    }
    found
}

fn complain(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_room_imports_only_what_the_plan_allows() {
    let mut problems = Vec::new();
    for member in members() {
        let Some((room, allowed)) = PLAN.iter().find(|(room, _)| *room == member.room) else {
            problems.push(format!("{} is not on the plan", member.room));
            continue;
        };
        let ours = member.imports.iter().filter_map(|name| name.strip_prefix("tidegate-"));
        problems.extend(
            ours.filter(|import| !allowed.contains(import))
                .map(|import| format!("{room} imports {import}, which the plan does not allow")),
        );
    }
    complain(&problems);
}

#[test]
fn every_folder_of_proxy_is_a_room_on_the_plan() {
    let mut problems = Vec::new();
    for entry in fs::read_dir(root().join("proxy")).unwrap() {
        let path = entry.unwrap().path();
        let room = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.join("Cargo.toml").exists() && !PLAN.iter().any(|(planned, _)| *planned == room) {
            problems.push(format!("{room} is not on the plan"));
        }
    }
    complain(&problems);
}

#[test]
fn every_foreign_crate_has_one_home() {
    let mut problems = Vec::new();
    for member in members().iter().filter(|member| member.room != "conformance") {
        for (pattern, home) in HOMES.iter().filter(|(_, home)| *home != member.room) {
            let matches = |name: &&String| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == pattern,
            };
            problems.extend(
                member
                    .imports
                    .iter()
                    .filter(matches)
                    .map(|name| format!("{} uses {name}, whose home is {home}", member.room)),
            );
        }
    }
    complain(&problems);
}

#[test]
fn a_wire_folder_knows_only_bytes() {
    let mut problems = Vec::new();
    for path in sources() {
        let in_wire =
            path.parent().is_some_and(|dir| dir.components().any(|part| part.as_os_str() == "wire"));
        if !in_wire || path.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let words = NOT_IN_WIRE.iter().filter(|word| code.contains(**word));
            problems.extend(words.map(|word| format!("{}:{}: `{word}` in wire", path.display(), at + 1)));
        }
    }
    complain(&problems);
}

#[test]
fn no_file_is_longer_than_600_lines() {
    let mut problems = Vec::new();
    for path in sources() {
        let lines = fs::read_to_string(&path).unwrap_or_default().lines().count();
        if lines > LINES {
            problems.push(format!("{} has {lines} lines; cut it along a noun", path.display()));
        }
    }
    complain(&problems);
}

#[test]
fn no_room_but_cache_makes_a_grant() {
    let mut problems = Vec::new();
    for path in sources() {
        let own = path.starts_with(root().join("proxy/cache")) || path.ends_with("tests/layering.rs");
        if own || path.extension().is_none_or(|end| end != "rs") {
            continue;
        }
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // `-> Grant {` opens a function; `Grant { ..` and `Grant::` make one.
            let made = code.contains("Grant::") || (code.contains("Grant {") && !code.contains("-> "));
            if made {
                problems.push(format!("{}:{}: only cache makes a Grant", path.display(), at + 1));
            }
        }
    }
    complain(&problems);
}

#[test]
fn every_file_says_what_lives_in_it() {
    let mut problems = Vec::new();
    for path in sources() {
        let rust = path.extension().is_some_and(|end| end == "rs");
        if rust && !fs::read_to_string(&path).unwrap().starts_with("//!") {
            problems.push(format!("{} does not start with `//!`", path.display()));
        }
    }
    complain(&problems);
}

// The page writes a test as `suite::name`, or as `room/src/file.rs::name`.
#[test]
fn the_conformance_page_names_only_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    let mut problems = Vec::new();
    let mut found = 0;
    // In a line, every second piece between backticks is a quotation.
    for quoted in page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let Some((place, name)) = quoted.rsplit_once("::").filter(|(_, name)| *name != "x") else { continue };
        let file = if Path::new(place).extension().is_some() {
            root().join("proxy").join(place)
        } else {
            root().join("conformance/tests").join(format!("{place}.rs"))
        };
        found += 1;
        if !fs::read_to_string(file).unwrap_or_default().contains(&format!("fn {name}(")) {
            problems.push(format!("{quoted} is no test"));
        }
    }
    assert!(found > 100, "only {found} tests are named");
    complain(&problems);
}

#[test]
fn every_cap_is_on_the_page_of_limits() {
    let page = fs::read_to_string(root().join("docs/limits.md")).unwrap();
    let source = fs::read_to_string(root().join("proxy/src/config/limits.rs")).unwrap();
    let keys = source.lines().filter_map(|line| line.strip_prefix("    pub(crate) ")?.split_once(": "));
    let keys: Vec<&str> = keys.map(|(key, _)| key).filter(|key| !key.starts_with("fn ")).collect();
    assert!(keys.len() > 10, "{keys:?}");
    let missing = keys.iter().filter(|key| !page.contains(&format!("| `{key}` |")));
    complain(&missing.map(|key| format!("limits.{key} is not on the page")).collect::<Vec<_>>());
}
