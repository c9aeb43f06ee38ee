//! The command line: what it accepts, what it refuses in which words, and its help.

use super::*;
use crate::config::arbitrary::check;
use crate::config::tests::{assert_says, textures};
use crate::config::{Init, Optimizer};
use crate::model::structure::Activation;
use proptest::prelude::prop_assert_eq;
use std::collections::BTreeSet;

/// A command line, split at spaces.
fn parse(line: &str) -> Result<Cli> {
    let words = std::iter::once("ntc-es").chain(line.split_whitespace()).map(Into::into);
    read(words).map(|cli| cli.expect("no help was asked for"))
}

#[test]
fn refusals_name_the_flag_and_the_remedy() {
    // A command line, and the words that its one line of error must have.
    let cases = [
        ("--crop -1", "--crop|Largest side"),
        ("--iters many", "--iters|0 to 1000000000"),
        ("--iters 2000000000", "--iters|1000000000"),
        ("--latnt 1 1 1", "--latnt|--latent"),
        ("--latent 64 64", "--latent|3|Latent level 0"),
        ("--latent 64 0 4", "--latent 64 0 4|both sides|0 0 4"),
        ("--latent 64 64 0", "--latent 64 64 0|1 to 128"),
        ("--latent 64 64 129", "--latent|1 to 128"),
        ("--latent 100000 100000 1", "--latent|67108864"),
        ("--latent2 16 16 0", "--latent2|leave it away"),
        ("--block 0", "--block 0|1 to 256"),
        ("--filter cubic", "--filter|bilinear|nearest"),
        ("--filter nearest,", "--filter|nearest,bilinear"),
        ("--mlp 24,0", "--mlp 0|1 to 128"),
        ("--mlp 129", "--mlp 129|128"),
        ("--mlp 1,1,1,1,1,1,1,1,1", "--mlp|9 hidden layers|1 to 8"),
        ("--hidden 16 --mlp 24,24", "--hidden|--mlp|only one"),
        ("--hidden 0", "--hidden 0|1 to 128"),
        ("--nfreq 2 --pos uv", "--nfreq|--pos"),
        ("--nfreq 99", "--nfreq 99|20"),
        ("--pos uw", "--pos|uw|uv"),
        ("--pos bdct:16", "--pos|bdct:16|15"),
        ("--act gelu", "--act|leaky"),
        ("--leak nan", "--leak|1"),
        ("--mlp-sigma 0", "--mlp-sigma 0|0.000001"),
        ("--mlp-sigma -1", "--mlp-sigma -1|100"),
        ("--lat-sigma inf", "--lat-sigma inf|100"),
        ("--lat2-sigma 0", "--lat2-sigma 0|100"),
        ("--mlp-lr 0", "--mlp-lr 0|100"),
        ("--lat-lr -0.1", "--lat-lr -0.1|100"),
        ("--lat-init -1", "--lat-init -1|0 to 100"),
        ("--mlp-fd nan", "--mlp-fd|NaN"),
        ("--mlp-fd-h 0", "--mlp-fd-h 0|1"),
        ("--mlp-pairs 0", "--mlp-pairs 0|1 to 65536"),
        ("--mlp-batch 0", "--mlp-batch 0|16777216"),
        ("--mlp-full-pairs 0", "--mlp-full-pairs 0|65536"),
        ("--lat-pairs 65537", "--lat-pairs 65537|65536"),
        ("--mlp-every 0", "--mlp-every 0|1"),
        ("--qat-every 0", "--qat-every 0|1"),
        ("--qat-joint", "--qat-joint|add --qat"),
        ("--qat 4,5 --qat-joint", "--qat-joint|9 bits|8"),
        ("--print-every 0", "--print-every 0|1"),
        ("--save-every 0", "--save-every 0|1"),
        ("--qbits 17", "--qbits 17|1 to 16"),
        ("--threads 5000", "--threads 5000|4096"),
        ("--deblock-falloff 0", "--deblock-falloff 0|0.01"),
        ("--lat-bits 13", "--lat-bits 13|0 to 12"),
        ("--lat-bits 4,4", "--lat-bits|2 depths for 1 levels"),
        ("--qat 2 --lat-bits 4,6", "--lat-bits 4,6|--qat|0,6"),
        ("--lat-bits-start nan", "--lat-bits-start NaN"),
        ("--mlp-bits 12", "--mlp-bits 12|16 or 8"),
        ("--mlp-bits-start inf", "--mlp-bits-start inf"),
        ("--optimizer adam", "--optimizer|es|gn"),
        ("--optimizer gn --deblock", "--deblock|--optimizer es|bilinear"),
        ("--lat-grad fd --deblock --latent 8 8 2", "--lat-grad fd|--deblock|es"),
        ("--lat-grad fd --cuda", "--lat-grad fd|--cuda"),
        ("--es-dist rademacher --cuda", "--es-dist rademacher|--cuda"),
        ("--lat-phases --cuda", "--lat-phases|--cuda"),
        ("--lat-phases --lat-alt", "--lat-phases|--lat-alt"),
        ("--lat-phases --lat-pairs 3", "--lat-pairs 3|multiple of 4"),
        ("--init zero", "--init|random|pca"),
        ("--preset slow", "--preset|fast|best"),
        ("--gn-h 1e-3", "--gn-h|2"),
        ("--gn-h 1e-3 0", "--gn-h UNIT 0|0.000001"),
        ("--gn-lat-steps 0", "--gn-lat-steps 0|1"),
        ("--gn-mlp-steps 0", "--gn-mlp-steps 0|1 to 1000"),
        ("--gn-texels 0", "--gn-texels 0|16777216"),
        ("--gn-grow 0.5 0.5", "--gn-grow FACTOR 0.5|1"),
        ("--gn-mlp-mu 1 1 1 1", "--gn-mlp-mu|5"),
        ("--gn-mlp-mu 1 1 1 2 2", "--gn-mlp-mu FALL 2|1"),
        ("--gn-near-mu 1 1 1 0.5 0.5", "--gn-near-mu RISE 0.5|1"),
        ("--gn-lin-mu 1 2 1 0.5 2", "--gn-lin-mu|LEAST 2|MOST 1"),
        ("--gn-tries 0 1", "--gn-tries DECODER 0|100"),
        ("--rd-lambda -1", "--rd-lambda -1|0"),
        ("--rd-lambda 3", "--rd-lambda 3|--optimizer gn"),
        ("--gn-right 0.5", "--gn-right 0.5|1"),
        ("--gn-cg 0", "--gn-cg 0|10000"),
        ("--target-psnr -1", "--target-psnr -1|200"),
        ("--max-seconds -1", "--max-seconds -1|0"),
        ("--patience 0", "--patience 0|1"),
        ("--lr-anneal 0.5", "--lr-anneal|2"),
        ("--lr-anneal -0.5 1", "--lr-anneal START -0.5|0"),
        ("--lr-anneal 0.5 -1", "--lr-anneal FINAL -1|0"),
        ("--sigma-anneal 0.5 0", "--sigma-anneal FINAL 0|0.0001"),
        ("--seed 4294967296 --rng mt", "--seed 4294967296|--rng mt|below"),
        ("--seed -1", "--seed|Seed"),
        ("--rng rand", "--rng|hash|mt"),
        ("--simd neon", "--simd|avx2"),
        ("--cuda --rng mt", "--rng mt|CPU|--cuda"),
        ("--cuda-device gpu", "--cuda-device gpu|number|emu"),
        ("--cuda-check-every 10", "--cuda-check-every|--cuda"),
        ("--cuda-check --resume out", "--cuda-check|--resume"),
        ("--qat 0", "--qat 0|1 to 8"),
        ("--qat 9", "--qat 9|1 to 8"),
        ("--qat 2 --filter bilinear", "--qat|nearest|bilinear"),
        ("--qat 2 --latent 128 128 2", "--qat|--filter nearest"),
        ("--qat 2,3,4 --latent 128 128 2 --filter nearest", "--qat|3 depths|2 channels"),
        ("--qat 2 --deblock", "--deblock|--qat"),
        ("--deblock --latent 0 0 2", "--deblock|2x2"),
        ("--weights 1,1,1,1 a.png b.png c.png", "--weights|4 weights|3 images|one per image"),
        ("--weights 0,0 a.png b.png", "--weights|at least one"),
        ("--weights 1,-1 a.png b.png", "--weights -1|0"),
        ("--weights 1,nan a.png b.png", "--weights NaN|0"),
        ("1 2 3 4 5 6 7 8 9", "IMAGE|9 images|1 to 8"),
        ("--resume out a.png", "--resume|IMAGE"),
        ("decode out", "--out"),
        ("eval out", "IMAGE"),
        ("synth --out d --size 0", "--size|8192"),
        ("--weights 1 --weights 2 a.png b.png", "--weights|give it once"),
        ("--crop 3 info run", "info|subcommand|first|./info"),
        ("a.png decode run", "decode|subcommand|first"),
    ];
    for (line, words) in cases {
        let error = parse(line).expect_err(line);
        assert_says(line, &error, words);
    }
}

#[test]
fn what_makes_sense_is_accepted() {
    let lines = [
        "",
        "m1.png m2.png --qat 2",
        "--qat 3,1",
        "--mlp-fd -1 --mlp-full -0.5 --mlp-freeze 0 --leak -0.5",
        "--lr-anneal 0.5 0 --sigma-anneal 0.25 0.1 a.png",
        "--latent 128 128 2 --latent2 16 16 4 --filter nearest,bilinear --qat 2 a.png",
        "--hidden 16 --nfreq 0",
        "--seed 18446744073709551615",
        "--seed 4294967295 --rng mt --iters 0",
        "--weights 0,1 a.png b.png",
        "--deblock --latent 32 32 4",
    ];
    for line in lines {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line));
    }
}

#[test]
fn defaults_follow_the_optimizer_and_the_preset() {
    let of = |line: &str| {
        let config = parse(line).unwrap().config;
        let text = crate::config::Config::from_toml(
            &line.split_whitespace().fold(String::new(), |text, word| match word.strip_prefix("--") {
                Some(key) => text + "\n" + key + " = ",
                None if word.parse::<u32>().is_ok() => text + word,
                None => format!("{text}\"{word}\""),
            }),
            std::path::Path::new("x"),
        );
        assert_eq!(text.unwrap(), config, "{line}: TOML");
        (config.iters, config.init, config.optimizer, config.act, config.mlp, config.gn_lat_steps, config.gn_mlp_steps)
    };
    let (es, gn, random, pca) = (Optimizer::Es, Optimizer::Gn, Init::Random, Init::Pca);
    let (leaky, tanh) = (Activation::Leaky, Activation::Tanh);
    assert_eq!(of(""), (3000, random, es, leaky, vec![24, 24], 2, 2));
    assert_eq!(of("--optimizer gn"), (60, pca, gn, tanh, vec![24, 24], 2, 2));
    assert_eq!(of("--optimizer gn --iters 7 --init random --act leaky"), (7, random, gn, leaky, vec![24, 24], 2, 2));
    assert_eq!(of("--preset fast"), (20, pca, gn, tanh, vec![24, 24], 1, 1));
    assert_eq!(of("--preset default"), (60, pca, gn, tanh, vec![36, 36], 2, 2));
    assert_eq!(of("--preset best"), (150, pca, gn, tanh, vec![48, 48], 2, 2));
    assert_eq!(of("--preset best --iters 9"), (9, pca, gn, tanh, vec![48, 48], 2, 2));
}

#[test]
fn every_flag_has_help_with_its_default() {
    let declared = command();
    for argument in declared.get_arguments().filter(|a| !["help", "version"].contains(&a.get_id().as_str())) {
        let name = argument.get_id();
        let help = argument.get_help().unwrap_or_else(|| panic!("{name} has no help")).to_string();
        let shown = !argument.get_default_values().is_empty();
        assert!(shown || help.contains("[default: "), "{name}: no default in: {help}");
        assert!(argument.get_help_heading().is_some(), "{name} has no heading");
    }
}

#[test]
fn the_command_is_sound() {
    command().debug_assert();
    let long = command().render_long_help().to_string();
    for words in ["Exit codes", "130", "ntc-es m1.png m2.png --qat 2", "Decoder step:", "[default: 24,24]"] {
        assert!(long.contains(words), "no `{words}` in:\n{long}");
    }
}

#[test]
fn given_lists_what_the_user_wrote() {
    let cli = parse("a.png --lat-lr 0.02 --qat=2 --clamp").unwrap();
    let given: BTreeSet<_> = cli.given.iter().map(String::as_str).collect();
    assert_eq!(given, BTreeSet::from(["images", "lat-lr", "qat", "clamp"]));
}

#[test]
fn a_loaded_model_keeps_its_shape() {
    let model =
        parse("--qat 2 --mlp 36,36 --act sine --qbits 7").unwrap().config.resolve(490, 490, textures(2)).unwrap();
    let adopt = |line: &str| {
        let cli = parse(line).unwrap();
        cli.config.adopt(&model, &cli.given)
    };
    for agreeing in ["", "--qat 2", "--hidden 36", "--mlp 36,36 --act sine", "--latent 0 0 1", "--lat-lr 0.1 --iters 5"]
    {
        let config = adopt(agreeing).unwrap_or_else(|e| panic!("{agreeing}: {e}"));
        assert_eq!(config.resolve(490, 490, textures(2)).unwrap(), model, "{agreeing}");
    }
    assert_eq!(adopt("--qbits 5").unwrap().qbits, 5);
    assert_eq!(adopt("--lat-lr 0.1").unwrap().lat_lr, 0.1);
    let contradicting =
        ["--mlp 24,24", "--hidden 24", "--act relu", "--latent 64 64 4", "--pos uv", "--clamp", "--block 8"];
    for line in contradicting {
        let flag = line.split(' ').next().unwrap();
        assert_says(line, &adopt(line).expect_err(line), &format!("{flag}|--load|leave it away"));
    }
}

#[test]
fn subcommands_and_fits_are_told_apart() {
    let eval = parse("eval run a.png b.png --float").unwrap();
    assert!(matches!(eval.command, Some(Command::Eval { images, float: true, out: None, .. }) if images.len() == 2));
    let synth = parse("synth --out d").unwrap();
    assert!(matches!(synth.command, Some(Command::Synth { size: 512, seed: 1, .. })));
    let resumed = parse("--resume out --threads 2").unwrap();
    assert_eq!((resumed.resume, resumed.given), (Some("out".into()), vec!["threads".to_owned(), "resume".to_owned()]));
    for line in ["decode run --out d --float", "info model.safetensors --json", "completions bash"] {
        assert!(parse(line).unwrap().command.is_some(), "{line}");
    }
}

#[test]
fn every_config_survives_its_flags() {
    check(|config| {
        let args = config.to_args();
        let words = std::iter::once("ntc-es".to_owned()).chain(args.iter().cloned()).map(Into::into);
        let back = read(words).map(|cli: Option<Cli>| cli.expect("no help was asked for").config);
        prop_assert_eq!(back.map_err(|e| e.to_string()), Ok(config.clone()), "{:?}", args);
        Ok(())
    });
}
