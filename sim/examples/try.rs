use steplet_sim::run::{Plan, run};
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    for seed in a[0]..=a[1] {
        let t = std::time::Instant::now();
        let mut p = Plan::new(seed);
        if a.len() > 2 {
            p.faults = a[2] == 1;
        }
        let r = std::panic::catch_unwind(|| run(&p, None));
        match r {
            Ok(v) => {
                println!(
                    "seed {seed} steps {} {:?} violations {}",
                    v.steps,
                    t.elapsed(),
                    v.violations.len()
                );
                for x in v.violations.iter().take(4) {
                    println!("   {x:?}");
                }
            }
            Err(e) => println!("seed {seed} PANIC {:?}", e.downcast_ref::<String>()),
        }
    }
}
