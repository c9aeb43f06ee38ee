use super::*;
#[test]
fn seeds() {
    let c = Config { seed: u64::MAX, ..Config::default() };
    let t = c.to_toml();
    println!("{t}\n{:?}", c.to_args());
    assert_eq!(toml::from_str::<Config>(&t).unwrap(), c);
}
