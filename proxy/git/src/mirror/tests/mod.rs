//! Mirrors fed by stock git: what it packs goes in, what it makes of our packs
//! is the judge.

mod bad_packs;
mod crashes;
mod publishing;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use gix_hash::{Kind, ObjectId};
use tempfile::TempDir;

use super::{Error, Limits, Mirror, Published, Update};
use crate::refs::{Builder, Head, Ref, RefName, RefTable};

/// Long after any test commit; publishes count from here.
const START: u64 = 1_800_000_000;
const DAY: u64 = 24 * 3_600;

/// A repository made by stock git, playing the upstream.
struct Source {
    dir: TempDir,
}

/// How to pack.
const OFS: &[&str] = &["--delta-base-offset"];
const REF: &[&str] = &[];
const THIN: &[&str] = &["--delta-base-offset", "--thin"];

fn git(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args([
            "-c",
            "user.name=n",
            "-c",
            "user.email=e@x",
            "-c",
            "gc.auto=0",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", dir)
        .env("GIT_AUTHOR_DATE", "1700000000 +0000")
        .env("GIT_COMMITTER_DATE", "1700000000 +0000")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

impl Source {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        git(dir.path(), &["init", "-q", "-b", "main", "."], b"");
        Self { dir }
    }

    /// One with a history that has deltas in it.
    fn with_history(commits: usize) -> Self {
        let source = Self::new();
        for n in 0..commits {
            source.commit(n);
        }
        source
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(git(self.path(), args, b"")).unwrap().trim().to_owned()
    }

    /// Changes one line of a long file, and adds a file in a folder.
    fn commit(&self, n: usize) -> ObjectId {
        let lines: Vec<_> = (0..400)
            .map(|line| format!("line {line} {}\n", if line == n { "changed" } else { "" }))
            .collect();
        fs::write(self.path().join("long"), lines.concat()).unwrap();
        fs::create_dir_all(self.path().join("folder")).unwrap();
        fs::write(self.path().join(format!("folder/{n}")), format!("file {n}\n")).unwrap();
        self.git(&["add", "."]);
        self.git(&["commit", "-q", "-m", &format!("commit {n}")]);
        self.oid("HEAD")
    }

    fn oid(&self, name: &str) -> ObjectId {
        ObjectId::from_hex(self.git(&["rev-parse", name]).as_bytes()).unwrap()
    }

    fn refs(&self) -> RefTable {
        let mut table = Builder::new(Kind::Sha1);
        let listed = self.git(&["for-each-ref", "--format=%(objectname) %(refname)"]);
        for line in listed.lines() {
            let (oid, name) = line.split_once(' ').unwrap();
            table.push(Ref {
                name: RefName::new(name.as_bytes()).unwrap(),
                oid: ObjectId::from_hex(oid.as_bytes()).unwrap(),
                peeled: None,
                symref: None,
            });
        }
        let target = RefName::new(self.git(&["symbolic-ref", "HEAD"]).as_bytes()).unwrap();
        table.head(if listed.is_empty() {
            Head::Unborn { target }
        } else {
            Head::Attached { oid: self.oid("HEAD"), target }
        });
        table.build().unwrap()
    }

    /// Packs what `revs` (lines for rev-list) name.
    fn pack(&self, revs: &str, how: &[&str]) -> PathBuf {
        let args = [&["pack-objects", "--revs", "--stdout", "-q"], how].concat();
        self.keep(&git(self.path(), &args, revs.as_bytes()))
    }

    /// Packs everything that refs lead to.
    fn pack_all(&self, how: &[&str]) -> PathBuf {
        self.pack("", &[how, &["--all"]].concat())
    }

    fn keep(&self, bytes: &[u8]) -> PathBuf {
        let mut file = tempfile::Builder::new().prefix("pack").tempfile_in(self.path().join(".git")).unwrap();
        file.write_all(bytes).unwrap();
        file.keep().unwrap().1
    }

    fn update(&self, pack: Option<PathBuf>) -> Update {
        update(self.refs(), pack)
    }
}

fn update(refs: RefTable, pack: Option<PathBuf>) -> Update {
    Update {
        refs,
        pack,
        roots: Vec::new(),
        shallow: Vec::new(),
        unshallow: Vec::new(),
        now: at(START),
        keep_superseded: Duration::from_secs(DAY),
        keep_max: 1_000,
    }
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn open(dir: &Path) -> Mirror {
    Mirror::open(dir, Limits::default()).unwrap()
}

/// A bare repository made of our packs and refs, and what `git fsck` says of it.
fn judge(mirror: &Mirror) -> TempDir {
    let snapshot = mirror.snapshot().unwrap();
    let bare = tempfile::tempdir().unwrap();
    git(bare.path(), &["init", "-q", "--bare", "."], b"");
    for file in fs::read_dir(mirror.folder.packs()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), bare.path().join("objects/pack").join(file.file_name())).unwrap();
    }
    let shallow: Vec<_> = snapshot.boundary.iter().map(|oid| format!("{oid}\n")).collect();
    if !shallow.is_empty() {
        fs::write(bare.path().join("shallow"), shallow.concat()).unwrap();
    }
    let kept = snapshot
        .retained
        .iter()
        .chain(&snapshot.roots)
        .map(|kept| (format!("refs/kept/{}", kept.oid), kept.oid));
    let named = snapshot.refs.refs().iter().map(|entry| (entry.name.to_string(), entry.oid));
    let commands: Vec<_> = named
        .chain(kept)
        .filter(|(name, oid)| snapshot.packs.contains(oid) || !name.starts_with("refs/pull/"))
        .map(|(name, oid)| format!("update {name} {oid}\n"))
        .collect();
    git(bare.path(), &["update-ref", "--stdin"], commands.concat().as_bytes());
    git(bare.path(), &["fsck", "--strict", "--full"], b"");
    assert_eq!(mirror.fsck(), Vec::<String>::new());
    bare
}

/// Every file of a mirror's folder, with its content.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn restore(dir: &Path, files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
