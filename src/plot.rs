//! Line plots as SVG.

use plotters::prelude::*;

/// One line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Its points, in order of x.
    pub points: Vec<(f64, f64)>,
}

/// What stands around the lines.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Above the plot.
    pub title: &'a str,
    /// Below the x axis, unit included.
    pub x: &'a str,
    /// Beside the y axis, unit included.
    pub y: &'a str,
    /// A logarithmic x axis.
    pub log_x: bool,
}

/// Ten colours that stay apart for most kinds of colour blindness when printed (Okabe and Ito 2008, and two greys).
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(127, 127, 127),
    RGBColor(140, 86, 75),
    RGBColor(188, 189, 34),
];

/// The plot as the text of an SVG file, the same bytes for the same points. Points that are not finite, or not above 0 on a
/// logarithmic axis, are left out.
///
/// # Errors
/// No point that can be drawn.
pub fn lines(frame: &Frame, series: &[Series]) -> Result<String, String> {
    let fits = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && (!frame.log_x || *x > 0.0);
    let series: Vec<Series> = series
        .iter()
        .map(|s| Series { name: s.name.clone(), points: s.points.iter().copied().filter(fits).collect() })
        .filter(|s| !s.points.is_empty())
        .collect();
    let all = || series.iter().flat_map(|s| s.points.iter());
    let span = |of: fn(&(f64, f64)) -> f64| {
        let ends = all().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        let margin = if ends.1 > ends.0 { 0.04 * (ends.1 - ends.0) } else { 1.0 };
        (ends.0 - margin, ends.1 + margin)
    };
    if all().next().is_none() {
        return Err(format!("{}: nothing to plot", frame.title));
    }
    let (x, y) = (span(|p| p.0), span(|p| p.1));
    let mut text = String::new();
    draw(&mut text, frame, &series, x, y).map_err(|e| format!("{}: {e}", frame.title))?;
    Ok(text)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(text: &mut String, frame: &Frame, series: &[Series], x: (f64, f64), y: (f64, f64)) -> Drawn {
    let area = SVGBackend::with_string(text, (800, 500)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut builder = ChartBuilder::on(&area);
    builder.caption(frame.title, ("sans-serif", 20)).margin(12).x_label_area_size(44).y_label_area_size(56);
    // One body for two kinds of axis, which are two types.
    macro_rules! fill {
        ($chart:expr) => {{
            let mut chart = $chart;
            chart.configure_mesh().x_desc(frame.x).y_desc(frame.y).light_line_style(WHITE).draw()?;
            for (k, line) in series.iter().enumerate() {
                let colour = COLOURS[k % COLOURS.len()];
                let drawn = chart.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
                drawn
                    .label(line.name.as_str())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
                if line.points.len() <= 40 {
                    chart.draw_series(line.points.iter().map(|&p| Circle::new(p, 3, colour.filled())))?;
                }
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::LowerRight)
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }};
    }
    if frame.log_x {
        let low = series.iter().flat_map(|s| s.points.iter()).map(|p| p.0).fold(f64::INFINITY, f64::min);
        fill!(builder.build_cartesian_2d((low * 0.9..x.1 * 1.1).log_scale(), y.0..y.1)?);
    } else {
        fill!(builder.build_cartesian_2d(x.0..x.1, y.0..y.1)?);
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_lines_and_is_the_same_every_time() {
        let series = [
            Series { name: "ours".into(), points: vec![(1.0, 30.0), (2.0, 33.0), (f64::NAN, 1.0)] },
            Series { name: "empty line".into(), points: vec![] },
        ];
        for log_x in [false, true] {
            let frame = Frame { title: "kodim23", x: "bpp", y: "PSNR, dB", log_x };
            let text = lines(&frame, &series).unwrap();
            assert!(
                text.starts_with("<svg") && ["kodim23", "bpp", "PSNR, dB", "ours"].iter().all(|w| text.contains(w))
            );
            assert!(!text.contains("empty line") && !text.contains("NaN") && text.matches("<polyline").count() >= 1);
            assert_eq!(text, lines(&frame, &series).unwrap());
        }
        let frame = Frame { title: "empty", x: "", y: "", log_x: false };
        assert!(lines(&frame, &series[1..]).is_err());
    }
}
