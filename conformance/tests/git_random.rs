//! Whatever happens to a repository, and whatever a client asks in whatever
//! order: through tidegate the outcome is the upstream's own.
//!
//! `TIDEGATE_SEED=N` repeats one run, `TIDEGATE_ROUNDS=N` makes runs longer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_conformance::{Dice, Git, Outcome, Run, Scene, World, eventually};

/// How a run is set up.
#[derive(Clone, Copy)]
struct Terms {
    quirks: &'static str,
    git: &'static str,
    store: &'static str,
}

const ROUNDS: u64 = 7;
const AMPLE: &str = "store: {disk_limit: 1GiB}";

/// Two clones of one client: straight, and through tidegate.
struct Twin {
    label: String,
    folders: [PathBuf; 2],
    protocol: u8,
    alive: bool,
}

struct Differential {
    scene: Scene,
    world: World,
    dice: Dice,
    path: String,
    terms: Terms,
    twins: Vec<Twin>,
    said: Vec<String>,
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn git(protocol: u8) -> Git {
    Git::speaking(protocol)
        .config("gc.auto=0")
        .config("init.defaultBranch=main")
        .config("maintenance.auto=false")
        .config("advice.detachedHead=false")
}

impl Differential {
    fn start(seed: u64, terms: Terms) -> Self {
        let scene = Scene::with(|setup| setup.git(terms.git).table(terms.store));
        let world = World::new(&scene.upstream, "world", seed);
        let path = format!("{}/world.git", terms.quirks);
        let dice = Dice::of(seed ^ 0xd1ce);
        Self { scene, world, dice, path, terms, twins: Vec::new(), said: vec![format!("seed {seed}")] }
    }

    fn urls(&self) -> [String; 2] {
        // What the upstream lacks, tidegate makes up for: the oracle lacks nothing.
        [self.scene.upstream.url("ok/world.git"), self.scene.url(&self.path)]
    }

    /// Runs the same words in both folders and wants the same to come out.
    fn same(
        &mut self,
        what: &str,
        protocol: u8,
        folders: &[PathBuf; 2],
        run: impl Fn(&str, &Path) -> Run,
    ) -> bool {
        self.said.push(format!("v{protocol} {what}"));
        let urls = self.urls();
        let bases = [self.scene.upstream.url("ok"), self.scene.url(self.terms.quirks)];
        let mut outcomes_said = Vec::new();
        let outcomes: Vec<(i32, Outcome)> = (0..2)
            .map(|side| {
                let ran = run(&urls[side], &folders[side]);
                let mut outcome = Outcome::new();
                let shown = folders[side].display().to_string();
                // Why a fetch failed is told more clearly than git's own server does.
                let stderr = if ran.code == 0 { ran.stderr.replace(&shown, "$DIR") } else { String::new() };
                let tidied = Run { stderr, ..ran.clone() };
                outcome.run(what, &tidied, &bases[side]);
                if folders[side].exists() {
                    outcome.repository(what, &folders[side]);
                    outcome.note("FETCH_HEAD", fetch_head(&folders[side]).replace(&bases[side], "$X"));
                }
                outcomes_said.push(format!("{} {}", ran.code, ran.stderr));
                (ran.code, outcome)
            })
            .collect();
        if outcomes[0].0 != outcomes[1].0 {
            self.said.extend(outcomes_said);
        }
        outcomes[0].1.must_equal(&outcomes[1].1, ("direct", "tidegate"));
        outcomes[0].0 == 0
    }

    /// Waits until tidegate shows what the upstream shows.
    fn settle(&self) {
        if self.terms.git.contains("always") {
            return;
        }
        let urls = self.urls();
        eventually(Duration::from_secs(20), "tidegate lists what the upstream lists", || {
            let lists = urls.each_ref().map(|url| Git::new().list(url).text());
            (lists[0] == lists[1]).then_some(())
        });
    }

    fn list(&mut self) {
        let protocol = self.protocol();
        let urls = self.urls();
        let lists = urls
            .each_ref()
            .map(|url| git(protocol).run(Path::new("/"), &["ls-remote", "--symref", url]).ok().text());
        assert_eq!(lists[0], lists[1], "ls-remote v{protocol}");
    }

    fn protocol(&mut self) -> u8 {
        *self.dice.pick(&[0, 1, 2, 2, 2])
    }

    fn date(&mut self) -> String {
        format!("{} +0000", 1_700_000_000 + self.dice.below(60) * 3600)
    }

    fn a_ref(&mut self, prefix: &str) -> Option<String> {
        let refs = self.world.refs(prefix);
        (!refs.is_empty()).then(|| self.dice.pick(&refs).clone())
    }

    fn a_branch(&mut self) -> String {
        self.a_ref("refs/heads")
            .map_or("main".to_owned(), |name| name.trim_start_matches("refs/heads/").to_owned())
    }

    fn excluded(&mut self) -> String {
        let prefix = if self.dice.chance(50) { "refs/heads" } else { "refs/tags" };
        let full = self.a_ref(prefix).unwrap_or("refs/heads/keep".to_owned());
        full.trim_start_matches("refs/").trim_start_matches("heads/").trim_start_matches("tags/").to_owned()
    }

    fn filter(&mut self) -> String {
        let filters = [
            "blob:none",
            "tree:0",
            "blob:limit=100",
            "tree:1",
            "combine:blob:none+tree:2",
            "object:type=commit",
        ];
        format!("--filter={}", self.dice.pick(&filters))
    }

    fn is_v0(&self) -> bool {
        self.terms.quirks.contains("v0only")
    }

    fn can_filter(&self) -> bool {
        !self.terms.quirks.contains("nofilter")
    }

    fn clone_flags(&mut self) -> Vec<String> {
        let depth = format!("--depth={}", 1 + self.dice.below(5));
        let flags = match self.dice.below(13) {
            0 | 1 => vec![],
            2 => vec!["--mirror".to_owned()],
            3 => vec!["--bare".to_owned()],
            4 => vec![depth],
            5 => vec![depth, "--no-single-branch".to_owned()],
            6 => vec!["--single-branch".to_owned(), format!("--branch={}", self.a_branch())],
            7 => vec![format!("--shallow-since={}", self.date()), "--no-single-branch".to_owned()],
            8 => vec![format!("--shallow-exclude={}", self.excluded()), "--no-single-branch".to_owned()],
            9 => vec!["--no-tags".to_owned(), depth, format!("--branch={}", self.a_branch())],
            10 => vec![self.filter()],
            11 => vec![self.filter(), depth],
            _ => vec![self.filter(), "--no-checkout".to_owned()],
        };
        if self.can_filter() {
            flags
        } else {
            flags.into_iter().filter(|flag| !flag.starts_with("--filter")).collect()
        }
    }

    fn clone(&mut self) {
        let (protocol, flags) = (self.protocol(), self.clone_flags());
        let label = format!("{}-{}", self.twins.len(), self.said.len());
        let folders = ["direct", "through"].map(|side| self.scene.folder(&format!("{label}-{side}")));
        let words: Vec<&str> = flags.iter().map(String::as_str).collect();
        let what = format!("twin {label}: clone {}", flags.join(" "));
        let cloned =
            self.same(&what, protocol, &folders, |url, folder| git(protocol).clone_into(url, folder, &words));
        if cloned {
            self.twins.push(Twin { label, folders, protocol, alive: true });
        }
    }

    fn fetch_words(&mut self, shallow: bool) -> Vec<String> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let deepen = 1 + self.dice.below(4);
        match self.dice.below(16) {
            0..=2 => owned(&["origin"]),
            3 => owned(&["--prune", "origin"]),
            4 | 5 => owned(&["origin", "--tags", "--force", "--prune"]),
            6 => owned(&[&format!("--depth={deepen}"), "origin"]),
            7 | 8 if shallow => owned(&[&format!("--deepen={deepen}"), "origin"]),
            9 if shallow => owned(&["--unshallow", "origin"]),
            10 => owned(&[&format!("--shallow-since={}", self.date()), "origin"]),
            11 => owned(&[&format!("--shallow-exclude={}", self.excluded()), "origin"]),
            12 | 13 => match self.a_ref("refs/pull") {
                Some(name) => owned(&["origin", &name]),
                None => owned(&["origin", "refs/pull/1/head"]),
            },
            14 if !self.terms.quirks.contains("nosha") => match self.world.any_commit() {
                Some(id) if self.dice.chance(50) => owned(&["origin", &id, "--depth=1"]),
                Some(id) => owned(&["origin", &id]),
                None => owned(&["origin"]),
            },
            _ => owned(&["origin", "+refs/*:refs/all/*"]),
        }
    }

    fn fetch(&mut self) {
        let alive: Vec<usize> = (0..self.twins.len()).filter(|at| self.twins[*at].alive).collect();
        if alive.is_empty() {
            return self.clone();
        }
        let at = *self.dice.pick(&alive);
        let (label, folders, cloned_with) = {
            let twin = &self.twins[at];
            (twin.label.clone(), twin.folders.clone(), twin.protocol)
        };
        let protocol = if self.dice.chance(70) { cloned_with } else { self.protocol() };
        let shallow = !tidegate_conformance::outcome::shallow(&folders[0]).is_empty();
        let words = self.fetch_words(shallow);
        let what = format!("twin {label}: fetch {}", words.join(" "));
        let mut arguments = vec!["fetch", "--quiet"];
        arguments.extend(words.iter().map(String::as_str));
        self.same(&what, protocol, &folders, |_, folder| git(protocol).run(folder, &arguments));
        if self.dice.chance(40) && folders[0].join(".git").exists() {
            let what = format!("twin {label}: checkout");
            self.same(&what, protocol, &folders, |_, folder| {
                git(protocol).run(folder, &["checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"])
            });
        }
        if self.dice.chance(20) && folders[0].join(".git").exists() {
            commit_locally(&folders, self.said.len());
            self.said.push(format!("twin {label}: commits of its own"));
        }
    }

    fn round(&mut self) {
        self.world.change();
        if self.is_v0() && !self.world.repository.exists("HEAD") {
            // Protocol v0 has no words for it, so the upstream can't tell tidegate.
            self.world.repository.set_head("keep");
        }
        self.settle();
        if self.dice.chance(10) {
            let path = self.path.clone();
            let output = self.scene.tidegate().verb(&["purge", &format!("git.test/{path}")]);
            self.said.push(format!("purge: {}", output.status));
            // Old clones know commits that the upstream still has by chance, and tidegate no more.
            self.twins.clear();
        }
        if self.dice.chance(5) {
            self.said.push("kill and restart".to_owned());
            self.scene.tidegate_mut().restart();
        }
        if self.dice.chance(30) {
            self.list();
        }
        for _ in 0..=self.dice.below(3) {
            if self.twins.len() < 3 || self.dice.chance(30) {
                self.clone();
            } else {
                self.fetch();
            }
        }
        for twin in &mut self.twins {
            twin.alive &= self.dice.chance(95);
        }
    }
}

impl Drop for Differential {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the repository\n{}\n--- the clients\n{}",
                self.world.history(),
                self.said.join("\n")
            );
        }
    }
}

fn fetch_head(folder: &Path) -> String {
    let files = [folder.join(".git/FETCH_HEAD"), folder.join("FETCH_HEAD")];
    files.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap_or_default()
}

/// The same commit in both clones, unknown to the upstream.
fn commit_locally(folders: &[PathBuf; 2], turn: usize) {
    for folder in folders {
        let date = format!("{} +0000", 1_800_000_000 + turn);
        let mut client = Git::new();
        for (key, value) in [("NAME", "Bob"), ("EMAIL", "bob@example.test"), ("DATE", &*date)] {
            client =
                client.env(&format!("GIT_AUTHOR_{key}"), value).env(&format!("GIT_COMMITTER_{key}"), value);
        }
        client.run(folder, &["commit", "--quiet", "--allow-empty", "-m", "of my own"]);
    }
}

fn run(first: u64, terms: Terms) {
    let seed = number("TIDEGATE_SEED", first);
    let mut differential = Differential::start(seed, terms);
    if !differential.is_v0() {
        // Empty at first.
        differential.clone();
        differential.list();
    }
    for _ in 0..number("TIDEGATE_ROUNDS", ROUNDS) {
        differential.round();
    }
}

#[test]
fn whatever_happens_every_read_that_asks_first_is_the_upstreams_own() {
    run(1, Terms { quirks: "ok", git: "revalidate: always", store: AMPLE });
}

#[test]
fn whatever_happens_reads_are_the_upstreams_own_once_the_refs_are() {
    run(2, Terms { quirks: "ok", git: "refresh_every: 1s", store: AMPLE });
}

#[test]
fn whatever_happens_a_v0_upstream_looks_the_same_through_tidegate() {
    run(3, Terms { quirks: "v0only", git: "revalidate: always", store: AMPLE });
}

#[test]
fn whatever_happens_an_upstream_without_filters_or_ids_looks_the_same() {
    run(4, Terms { quirks: "nofilter+nosha", git: "revalidate: always", store: AMPLE });
}

#[test]
fn whatever_happens_a_store_without_room_changes_no_answer() {
    run(
        5,
        Terms {
            quirks: "ok",
            git: "revalidate: always",
            store: "store: {disk_limit: 1MiB, memory_limit: 1MiB}",
        },
    );
}

/// One client that clones and fetches until told to stop; each answer must be whole.
fn client_in_a_hurry(scene: &Scene, upstream: &Path, number: usize, over: &AtomicBool) -> usize {
    let mut dice = Dice::of(number as u64);
    let url = scene.url("ok/world.git");
    let (kept, mut runs) = (scene.folder("kept"), 0);
    git(2).clone_into(&url, &kept, &["--mirror"]).ok();
    while !over.load(Ordering::Relaxed) {
        let client = git(*dice.pick(&[0, 1, 2]));
        let folder = scene.folder("hurry");
        let flags: &[&[&str]] = &[&["--bare"], &["--bare", "--depth=2", "--no-single-branch"], &["--mirror"]];
        client.clone_into(&url, &folder, flags[dice.below(flags.len())]).ok();
        client.run(&kept, &["fetch", "--quiet", "--prune", "origin"]).ok();
        for place in [&folder, &kept] {
            client.run(place, &["fsck", "--strict"]).ok();
            let refs = client.run(place, &["for-each-ref", "--format=%(objectname)"]).ok().text();
            let shown: Vec<&str> =
                ["show", "--no-patch", "--format="].into_iter().chain(refs.lines()).collect();
            git(2).run(upstream, &shown).ok();
        }
        runs += 1;
    }
    runs
}

#[test]
fn clients_amid_pushes_and_force_pushes_all_get_whole_answers() {
    let scene = Scene::with(|setup| setup.git("refresh_every: 1s"));
    let mut world = World::new(&scene.upstream, "world", 6);
    world.change();
    let (over, upstream) = (AtomicBool::new(false), scene.upstream.repository_path("world"));
    let runs: usize = std::thread::scope(|scope| {
        let (scene, over, upstream) = (&scene, &over, &upstream);
        let clients: Vec<_> = (0..4)
            .map(|number| scope.spawn(move || client_in_a_hurry(scene, upstream, number, over)))
            .collect();
        for _ in 0..number("TIDEGATE_ROUNDS", ROUNDS) {
            world.change();
        }
        over.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client's answers are whole")).sum()
    });
    assert!(runs > 0);
}
