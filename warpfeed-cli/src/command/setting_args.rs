//! Options that set one setting of a pipeline each, from the library's table of settings.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::marker::PhantomData;
use std::str::FromStr;
use warpfeed::{Result, Setting, SettingEffect};

/// The settings that a command has options for.
pub trait Settings {
    fn has(name: &str) -> bool;
}

/// The settings of pipelines. Those that are left out have options of another form.
pub struct OfPipelines;

impl Settings for OfPipelines {
    fn has(name: &str) -> bool {
        !matches!(name, "shuffle" | "partition" | "pinned")
    }
}

/// The settings for opening an image.
pub struct OfImages;

impl Settings for OfImages {
    fn has(name: &str) -> bool {
        matches!(
            name,
            "orientation"
                | "draft"
                | "thumbnail"
                | "accept_truncated"
                | "max_pixels"
                | "pass_order"
                | "pixels"
                | "max_value"
        )
    }
}

/// Values of settings, as they were given.
pub struct SettingArgs<S> {
    given: Vec<(&'static Setting, String)>,
    of: PhantomData<S>,
}

impl<S> SettingArgs<S> {
    /// Names and values of the settings that were given another value than their default.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.given.iter().map(|(setting, text)| (setting.name, text.as_str()))
    }

    /// The value of a setting; `None` if it has none, or its default.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.given().find(|(given, _)| *given == name).map(|(_, text)| text)
    }

    /// The value of a setting, or its default.
    pub fn get<T: FromStr<Err = warpfeed::Error>>(&self, name: &str) -> Result<T> {
        let default = Setting::named(name).map_or("", |setting| setting.default);
        self.text(name).unwrap_or(default).parse()
    }

    /// Only the settings that decide about batches.
    pub fn that_decide(mut self) -> Self {
        self.given.retain(|(setting, _)| setting.effect != SettingEffect::Nothing);
        self
    }

    /// The settings with another value of one.
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.given.retain(|(given, _)| given.name != name);
        self.given.extend(Setting::named(name).map(|setting| (setting, value.to_string())));
        self
    }
}

impl<S: Settings> SettingArgs<S> {
    fn all() -> impl Iterator<Item = &'static Setting> {
        Setting::ALL.iter().filter(|setting| S::has(setting.name))
    }
}

impl<S: Settings> Args for SettingArgs<S> {
    fn augment_args(command: Command) -> Command {
        Self::all().fold(command, |command, setting| command.arg(option(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<S: Settings> FromArgMatches for SettingArgs<S> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &'static Setting| {
            if matches.value_source(setting.name) != Some(ValueSource::CommandLine) {
                return None;
            }
            let text = if setting.is_flag() {
                matches.get_flag(setting.name).to_string()
            } else {
                matches.get_many::<String>(setting.name)?.map(String::as_str).collect::<Vec<_>>().join(",")
            };
            (text != setting.default).then_some((setting, text))
        };
        Ok(Self { given: Self::all().filter_map(given).collect(), of: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The option of a setting.
fn option(setting: &'static Setting) -> Arg {
    let (help, more) = setting.description.split_once("\n\n").unwrap_or((setting.description, ""));
    let is_value = setting.check(setting.default).is_ok() && !setting.default.is_empty();
    let help = match setting.default {
        "" => help.to_owned(),
        _ if is_value => help.to_owned(),
        default => format!("{} [default: {default}]", help.trim_end_matches('.')),
    };
    let arg = Arg::new(setting.name).long(setting.name.replace('_', "-"));
    let arg = if more.is_empty() { arg.help(help) } else { arg.long_help(format!("{help}\n\n{more}")).help(help) };
    if setting.is_flag() {
        return arg.action(ArgAction::SetTrue);
    }
    let arg = if is_value { arg.default_value(setting.default) } else { arg };
    if !setting.choices.is_empty() {
        let name = setting.name.to_uppercase();
        return arg.value_name(name).value_parser(PossibleValuesParser::new(setting.choices.iter().map(possible)));
    }
    let arg = arg.value_name(setting.value).value_parser(|text: &str| setting.check(text).map(|()| text.to_owned()));
    if setting.is_list() { arg.value_delimiter(',').action(ArgAction::Append) } else { arg }
}

fn possible((name, description): &(&'static str, &'static str)) -> PossibleValue {
    PossibleValue::new(*name).help(*description)
}

/// Parses a value of the setting `name`, which has a name for each of its values.
pub fn choice<T>(name: &str) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err = warpfeed::Error> + Clone + Send + Sync + 'static,
{
    let choices = Setting::named(name).map_or(&[][..], |setting| setting.choices);
    PossibleValuesParser::new(choices.iter().map(possible)).try_map(|text| text.parse())
}
