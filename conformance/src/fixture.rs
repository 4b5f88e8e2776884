//! The repositories that scenarios run on, small and made fresh, the same bytes
//! every time.

use std::fmt::Write;

use crate::repository::Repository;
use crate::upstream::Upstream;

/// Something of everything ordinary: branches, light and annotated tags, merges, folders.
pub fn plain(upstream: &Upstream, name: &str) -> Repository {
    let repository = upstream.repository(name);
    for turn in 0..12 {
        let text = format!("turn {turn}\n{}", "a line that repeats\n".repeat(40));
        let path = format!("apps/app-{}/values.yaml", turn % 4);
        repository.commit("main", &format!("change {turn}"), &[(&path, &text), ("README.md", &text)]);
        match turn {
            3 => repository.set("refs/tags/v0.1.0", "refs/heads/main"),
            5 => repository.set("refs/heads/release", "refs/heads/main"),
            6 => drop(repository.annotate("v1.0.0", "refs/heads/main")),
            _ => {}
        }
    }
    repository.commit("release", "a fix", &[("fix.txt", "fixed\n")]);
    repository.merge("main", &["refs/heads/release"], "the fix comes home");
    repository.annotate("v1.1.0", "refs/heads/main");
    repository.set("refs/heads/feature/deep/name", "refs/tags/v0.1.0^{}");
    repository.commit("feature/deep/name", "elsewhere", &[("feature.txt", "new\n")]);
    repository
}

/// A merge of four branches at once.
pub fn octopus(upstream: &Upstream) -> Repository {
    let repository = upstream.repository("octopus");
    repository.commit("main", "the start", &[("a.txt", "a\n")]);
    for arm in ["one", "two", "three"] {
        repository.set(&format!("refs/heads/{arm}"), "refs/heads/main");
        repository.commit(arm, arm, &[(&format!("{arm}.txt"), arm)]);
    }
    let arms = ["refs/heads/one", "refs/heads/two", "refs/heads/three"];
    repository.merge("main", &arms, "four at once");
    repository
}

/// Nested tags n1 to n3; light and annotated tags of a blob and of a tree.
pub fn tags(upstream: &Upstream) -> Repository {
    let repository = upstream.repository("tags");
    repository.commit("main", "one", &[("file.txt", "content\n")]);
    repository.annotate("n1", "refs/heads/main");
    repository.annotate("n2", "refs/tags/n1");
    repository.annotate("n3", "refs/tags/n2");
    let blob = repository.write_object("blob", b"a blob that only a tag knows\n");
    let inner = repository.write_object("blob", b"inside a tree that only a tag knows\n");
    let tree = repository.feed(&["mktree"], format!("100644 blob {inner}\tinner.txt\n").as_bytes());
    repository.set("refs/tags/tb-light", &blob);
    repository.set("refs/tags/tt-light", &tree);
    repository.annotate("tb-ann", &blob);
    repository.annotate("tt-ann", &tree);
    repository
}

/// Objects that fsck complains about and that a plain clone accepts.
pub fn bad(upstream: &Upstream) -> Repository {
    let repository = upstream.repository("bad");
    repository.commit("main", "a sound start", &[("sound.txt", "sound\n")]);
    let start = repository.resolve("refs/heads/main");
    let blob = repository.write_object("blob", b"bad\n");
    let folder = repository.write_object("tree", &tree_entry("100644", "leaf.txt", &blob));
    let padded = repository.write_object("tree", &tree_entry("040000", "folder", &folder));
    let idents = [
        "Ada <ada@example.test> 1700000000 +051",
        "Ada<ada@example.test> 1700000060 +0000",
        "Ada <ada@example.test> 1700000120 -7",
    ];
    let mut parent = start;
    for ident in idents {
        let body = format!("tree {padded}\nparent {parent}\nauthor {ident}\ncommitter {ident}\n\nodd\n");
        parent = repository.write_object("commit", body.as_bytes());
    }
    let ident = "Ada <ada@example.test> 1700000180 +0000";
    let signed = format!(
        "tree {padded}\nparent {parent}\nauthor {ident}\ncommitter {ident}\ngpgsig one\n two\ngpgsig three\n four\n\nsigned twice\n"
    );
    let tip = repository.write_object("commit", signed.as_bytes());
    repository.set("refs/heads/main", &tip);
    let undated =
        format!("object {tip}\ntype commit\ntag undated\ntagger Ada <ada@example.test>\n\nundated\n");
    let tag = repository.write_object("tag", undated.as_bytes());
    repository.set("refs/tags/undated", &tag);
    repository
}

fn tree_entry(mode: &str, name: &str, oid: &str) -> Vec<u8> {
    let mut entry = format!("{mode} {name}\0").into_bytes();
    for pair in 0..oid.len() / 2 {
        entry.push(u8::from_str_radix(&oid[pair * 2..pair * 2 + 2], 16).expect("an oid is hex"));
    }
    entry
}

/// Seventeen refs whose names are legal and odd, one of them no UTF-8; their names in order.
pub fn names(upstream: &Upstream) -> (Repository, Vec<Vec<u8>>) {
    let repository = upstream.repository("names");
    repository.commit("main", "one", &[("file.txt", "content\n")]);
    let tip = repository.resolve("refs/heads/main");
    let long = format!("refs/heads/{}", "x".repeat(200));
    let mut names: Vec<Vec<u8>> = [
        "refs/heads/with#hash",
        "refs/heads/with%25percent",
        "refs/heads/with%2fslash",
        "refs/heads/with+plus",
        "refs/heads/ünïcode-分支",
        "refs/heads/@",
        "refs/heads/a@b",
        "refs/heads/dir/-dash",
        "refs/heads/HEAD",
        "refs/heads/foo{1",
        "refs/heads/refs/heads/main",
        "refs/heads/with&and=eq",
        "refs/heads/with'quote\"s",
        "refs/heads/with$dollar",
        "refs/tags/v1.0.0+build.3",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(long.into_bytes());
    names.push(b"refs/heads/latin-\xe9t\xe9".to_vec());
    let mut input = Vec::new();
    for name in &names {
        input.extend_from_slice(b"create ");
        input.extend_from_slice(name);
        input.push(0);
        input.extend_from_slice(tip.as_bytes());
        input.push(0);
    }
    repository.feed(&["update-ref", "--stdin", "-z"], &input);
    (repository, names)
}

/// HEAD names a branch that does not exist.
pub fn hmiss(upstream: &Upstream) -> Repository {
    let repository = upstream.repository("hmiss");
    repository.commit("master", "one", &[("file.txt", "content\n")]);
    repository.commit("master", "two", &[("file.txt", "more content\n")]);
    repository.set_head("gone");
    repository
}

/// No refs at all.
pub fn empty(upstream: &Upstream) -> Repository {
    upstream.repository("empty")
}

/// A repository of the newer object format.
pub fn sha256(upstream: &Upstream) -> Repository {
    let repository = Repository::init(&upstream.repository_path("sha256"), "sha256");
    repository.commit("main", "one", &[("file.txt", "content\n")]);
    repository.commit("main", "two", &[("file.txt", "more content\n")]);
    repository.annotate("v1.0.0", "refs/heads/main");
    repository
}

/// Refs outside heads and tags: notes, pull requests.
pub fn listed(upstream: &Upstream) -> Repository {
    let repository = upstream.repository("listed");
    repository.commit("main", "one", &[("file.txt", "content\n")]);
    for number in 1..=3 {
        let branch = format!("pr-{number}");
        repository.set(&format!("refs/heads/{branch}"), "refs/heads/main");
        repository.commit(&branch, &branch, &[(&format!("{branch}.txt"), "wanted\n")]);
        repository.set(&format!("refs/pull/{number}/head"), &format!("refs/heads/{branch}"));
        repository.delete(&format!("refs/heads/{branch}"));
    }
    repository.git(&["notes", "--ref=deploy", "add", "-m", "deployed", "refs/heads/main"]);
    repository
}

/// A repository with a submodule at a relative URL, and that submodule.
pub fn submodules(upstream: &Upstream) -> Repository {
    let inner = upstream.repository("inner");
    let tip = inner.commit("main", "inside", &[("inner.txt", "inside\n")]);
    let outer = upstream.repository("outer");
    let modules = "[submodule \"inner\"]\n\tpath = inner\n\turl = ../inner.git\n";
    outer.commit("main", "outside", &[(".gitmodules", modules)]);
    let stream = format!(
        "commit refs/heads/main\ncommitter Ada <ada@example.test> 1700009999 +0000\ndata 4\nlink\nfrom refs/heads/main^0\nM 160000 {tip} inner\n"
    );
    outer.import(&stream);
    outer
}

/// `count` branches on ten commits.
pub fn many_refs(upstream: &Upstream, count: usize) -> Repository {
    let repository = upstream.repository("many");
    let tips: Vec<String> = (0..10)
        .map(|turn| repository.commit("main", &format!("{turn}"), &[("file.txt", &format!("{turn}\n"))]))
        .collect();
    let mut input = String::new();
    for number in 0..count {
        let tip = &tips[number % tips.len()];
        let _ = writeln!(input, "create refs/heads/team-{}/branch-{number:05} {tip}", number % 37);
    }
    repository.feed(&["update-ref", "--stdin"], input.as_bytes());
    repository.git(&["pack-refs", "--all"]);
    repository
}

/// `length` commits with a merge every tenth; returned with its tip.
pub fn history(upstream: &Upstream, name: &str, length: usize) -> Repository {
    let repository = upstream.repository(name);
    let mut stream = String::new();
    for turn in 0..length {
        let date = 1_700_000_000 + turn * 60;
        let side = turn % 10 == 8;
        let branch = if side { "refs/heads/side" } else { "refs/heads/main" };
        if side {
            let _ = writeln!(stream, "reset {branch}\nfrom refs/heads/main\n");
        }
        let message = format!("commit {turn}\n");
        let _ = write!(
            stream,
            "commit {branch}\ncommitter Ada <ada@example.test> {date} +0000\ndata {}\n{message}",
            message.len()
        );
        if turn % 10 == 9 {
            let _ = writeln!(stream, "merge refs/heads/side");
        }
        let text = format!("{turn}\n{}", format!("line of {turn}\n").repeat(20));
        let path = format!("folder-{}/file-{}.txt", turn % 7, turn % 31);
        let _ = write!(stream, "M 644 inline {path}\ndata {}\n{text}\n", text.len());
    }
    repository.import(&stream);
    repository
}

/// A repository whose blobs don't compress: `kib` KiB in one file per 64 KiB.
pub fn heavy(upstream: &Upstream, name: &str, kib: usize) -> Repository {
    let repository = upstream.repository(name);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let files: Vec<(String, String)> = (0..kib.div_ceil(64))
        .map(|number| {
            let mut text = String::with_capacity(64 * 1024);
            while text.len() < 64 * 1024 {
                // xorshift: the same noise every time
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let _ = write!(text, "{seed:016x}");
            }
            (format!("noise/{number:04}.txt"), text)
        })
        .collect();
    let borrowed: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    repository.commit("main", "noise", &borrowed);
    repository
}
