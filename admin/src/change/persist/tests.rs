//! Losses of power and failures at every step, on a model; permissions and links on real files.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use super::model::{Event, Model, Remains};
use super::rewritten as text;
use super::*;
use crate::config::{Config, TEXT_MAX};

const FILE: &str = "/f/millraced.yaml";
const BACKUP: &str = "/f/millraced.yaml.bak.1";
const NEXT_BACKUP: &str = "/f/millraced.yaml.bak.2";
const BY_HAND: &str = "# by hand\nlog: info\n";

fn config(log: &str) -> Config {
    Config {
        log: log.to_owned(),
        ..Config::default()
    }
}

fn persist(disk: &dyn Disk, file: &Path, config: &Config) -> std::io::Result<()> {
    let old = disk.read(&disk.resolve(file)?)?;
    Staged::new(disk, file, old, &text(config))?.commit()
}

fn of<'a>(remains: &'a Remains, name: &str) -> Option<&'a str> {
    let content = remains.get(Path::new(name))?;
    Some(std::str::from_utf8(content).unwrap())
}

/// Initial states of a disk.
fn beginnings() -> Vec<Vec<(&'static str, String)>> {
    let ours = text(&config("warn"));
    let by_hand = BY_HAND.to_owned();
    vec![
        vec![(FILE, by_hand.clone())],
        vec![(FILE, by_hand.clone()), (BACKUP, "# older\n".to_owned())],
        vec![(FILE, ours.clone()), (BACKUP, by_hand.clone())],
        vec![(FILE, ours)],
        // Left behind by an earlier loss of power.
        vec![
            (FILE, by_hand),
            ("/f/.millraced.yaml.new", "half".to_owned()),
            ("/f/.millraced.yaml.bak.new", String::new()),
        ],
    ]
}

fn model(files: &[(&'static str, String)], event: Option<(usize, Event)>) -> Model {
    let files: Vec<_> = files
        .iter()
        .map(|(name, content)| (*name, content.as_str()))
        .collect();
    Model::new(&files, event)
}

#[test]
fn whenever_the_power_goes_the_file_is_whole_and_a_new_one_has_a_backup() {
    let new = text(&config("debug"));
    for files in beginnings() {
        let old = files[0].1.clone();
        let has_backup = files.iter().any(|(name, _)| *name == BACKUP);
        let new_backup = if has_backup { NEXT_BACKUP } else { BACKUP };
        let whole = model(&files, None);
        persist(&whole, Path::new(FILE), &config("debug")).unwrap();
        let operations = whole.operations();
        assert!(operations >= 4);
        for at in 0..=operations {
            let disk = model(&files, Some((at, Event::PowerCut)));
            let done = persist(&disk, Path::new(FILE), &config("debug"));
            assert_eq!(done.is_ok(), at == operations, "{at}: {done:?}");
            for remains in disk.after_power_cut() {
                let file = of(&remains, FILE).expect("there is a file at every moment");
                let backup = of(&remains, new_backup);
                assert!(file == old || file == new, "{at}: {file}");
                if file == new {
                    assert_eq!(backup, Some(old.as_str()), "{at}: a new file has a backup");
                }
                assert!(
                    backup.is_none_or(|backup| backup == old),
                    "{at}: {backup:?}"
                );
                assert_eq!(
                    has_backup,
                    remains.contains_key(Path::new(BACKUP)) && new_backup != BACKUP
                );
                assert!(done.is_err() || file == new, "{at}: reported and lost");
            }
        }
    }
}

#[test]
fn a_step_that_fails_leaves_the_old_file_and_nothing_else_behind() {
    for files in beginnings() {
        let old = files[0].1.clone();
        let operations = {
            let disk = model(&files, None);
            persist(&disk, Path::new(FILE), &config("debug")).unwrap();
            disk.operations()
        };
        for at in 0..operations {
            let disk = model(&files, Some((at, Event::Failure)));
            let error = persist(&disk, Path::new(FILE), &config("debug")).unwrap_err();
            assert!(error.to_string().contains("the disk refuses"), "{error}");
            assert!(!error.to_string().contains("may hold the new"), "{error}");
            let now = disk.now();
            assert_eq!(of(&now, FILE), Some(old.as_str()), "{at}");
            assert!(
                now.keys()
                    .all(|name| !name.to_string_lossy().ends_with(".new")),
                "{at}: {now:?}"
            );
        }
    }
}

#[test]
fn backups_are_numbered_and_the_latest_are_kept() {
    let odd = ("/f/millraced.yaml.bak.007", "mine");
    let disk = Model::new(&[(FILE, BY_HAND), odd, ("/f/other.bak.9", "mine")], None);
    let filters = ["0", "1", "2", "3", "4", "5", "0"];
    for log in filters {
        persist(&disk, Path::new(FILE), &config(log)).unwrap();
        assert_eq!(of(&disk.now(), FILE), Some(text(&config(log)).as_str()));
    }
    let now = disk.now();
    let backup = |number: usize| of(&now, &format!("{FILE}.bak.{number}")).map(str::to_owned);
    assert_eq!((backup(1), backup(2)), (None, None));
    for number in 3..=7 {
        assert_eq!(backup(number), Some(text(&config(filters[number - 2]))));
    }
    assert_eq!(now.len(), 8, "{now:?}");
    let operations = disk.operations();
    persist(&disk, Path::new(FILE), &config("0")).unwrap();
    assert_eq!(
        disk.operations(),
        operations,
        "what is there already is not written"
    );
}

#[test]
fn a_change_that_is_given_up_leaves_nothing_behind() {
    let disk = model(&[(FILE, BY_HAND.to_owned())], None);
    let old = BY_HAND.as_bytes().to_vec();
    drop(Staged::new(&disk, Path::new(FILE), old, &text(&config("warn"))).unwrap());
    let now = disk.now();
    assert_eq!((of(&now, FILE), now.len()), (Some(BY_HAND), 1));
}

#[test]
fn permissions_and_links_stay() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    let file = real.join("config");
    fs::write(&file, BY_HAND).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path().join("link.yaml");
    symlink("real/config", &link).unwrap();
    let before = fs::metadata(&file).unwrap();
    persist(&HostDisk, &link, &config("warn")).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&link).unwrap(), text(&config("warn")));
    let backup = real.join("config.bak.1");
    assert_eq!(fs::read_to_string(&backup).unwrap(), BY_HAND);
    for file in [&file, &backup] {
        let now = fs::metadata(file).unwrap();
        assert_eq!(now.mode() & 0o7777, 0o640);
        assert_eq!((now.uid(), now.gid()), (before.uid(), before.gid()));
    }
    assert_eq!(fs::read_dir(&real).unwrap().count(), 2);
    assert_eq!(crate::config::load(&file).unwrap(), config("warn"));
}

#[test]
fn files_keep_their_owner() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    fs::write(&file, BY_HAND).unwrap();
    if chown(&file, Some(1), Some(2)).is_err() {
        return millrace_testing::skip!("only root gives files away");
    }
    persist(&HostDisk, &file, &config("warn")).unwrap();
    for file in [&file, &folder.path().join("config.bak.1")] {
        let now = fs::metadata(file).unwrap();
        assert_eq!((now.uid(), now.gid()), (1, 2), "{}", file.display());
    }
}

#[test]
fn files_are_read_up_to_the_most_bytes_of_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    for (length, expected) in [(TEXT_MAX, Some(TEXT_MAX)), (TEXT_MAX + 1, None)] {
        fs::write(&file, vec![b'#'; length]).unwrap();
        let content = HostDisk.read(&file).ok();
        assert_eq!(content.map(|content| content.len()), expected);
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none.yaml");
    assert!(persist(&HostDisk, &none, &config("warn")).is_err());
    let file = folder.path().join("config");
    fs::write(&file, BY_HAND).unwrap();
    // A folder in place of the new file cannot be removed like a file.
    fs::create_dir(folder.path().join(".config.new")).unwrap();
    let error = persist(&HostDisk, &file, &config("warn")).unwrap_err();
    assert!(error.to_string().contains(".config.new"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), BY_HAND);
}
