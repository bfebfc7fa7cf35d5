//! async-openai.
use async_openai::{
    Client,
    config::OpenAIConfig,
    types::chat::{
        ChatCompletionStreamOptions, ChatCompletionTool, ChatCompletionTools, ChatCompletionRequestUserMessage,
        CreateChatCompletionRequest, CreateChatCompletionRequestArgs, FunctionObjectArgs,
    },
};
use futures::StreamExt;
use serde_json::json;
use std::{error::Error, io::stdin};

const QUESTION: &str = "Say this back, word by word";

type Counted = Result<Option<[u32; 2]>, Box<dyn Error>>;

fn twenty() -> String {
    (0..20).map(|index| format!("t{index}")).collect::<Vec<_>>().join(" ")
}

fn asked(model: &str) -> CreateChatCompletionRequest {
    CreateChatCompletionRequestArgs::default()
        .model(model)
        .messages([ChatCompletionRequestUserMessage::from(QUESTION).into()])
        .build()
        .unwrap()
}

fn equal(found: &str, expected: &str) -> Result<(), Box<dyn Error>> {
    if found == expected { Ok(()) } else { Err(format!("{found:?} instead of {expected:?}").into()) }
}

/// The text of a stream, and the counts in it. Without `with_usage` every chunk must have a choice.
async fn gather(client: &Client<OpenAIConfig>, with_usage: bool) -> Result<(String, Vec<[u32; 2]>), Box<dyn Error>> {
    let mut request = asked("sim-20x0");
    if with_usage {
        request.stream_options =
            Some(ChatCompletionStreamOptions { include_usage: Some(true), include_obfuscation: None });
    }
    let (mut text, mut counts) = (String::new(), vec![]);
    let mut stream = client.chat().create_stream(request).await?;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        if let Some(usage) = chunk.usage {
            counts.push([usage.prompt_tokens, usage.completion_tokens]);
        }
        match chunk.choices.first() {
            Some(choice) => text += choice.delta.content.as_deref().unwrap_or(""),
            None if with_usage => (),
            None => return Err("a chunk without a choice".into()),
        }
    }
    Ok((text, counts))
}

async fn run(client: &Client<OpenAIConfig>, feature: &str) -> Counted {
    match feature {
        "whole" => {
            let answer = client.chat().create(asked("sim-echo")).await?;
            equal(answer.choices[0].message.content.as_deref().unwrap_or(""), QUESTION)?;
        }
        "stream" | "loop" => equal(&gather(client, false).await?.0, &twenty())?,
        "usage" => {
            let (_, bare) = gather(client, false).await?;
            let (_, counts) = gather(client, true).await?;
            if !bare.is_empty() || counts.len() != 1 {
                return Err(format!("usage {} times unasked, {} times asked", bare.len(), counts.len()).into());
            }
            return Ok(Some(counts[0]));
        }
        "tools" => {
            let mut request = asked("sim-tools");
            let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
            let function = FunctionObjectArgs::default().name("get_weather").parameters(parameters).build()?;
            request.tools = Some(vec![ChatCompletionTools::Function(ChatCompletionTool { function })]);
            let answer = client.chat().create(request).await?;
            let calls = serde_json::to_value(&answer.choices[0].message.tool_calls)?;
            equal(calls[0]["function"]["name"].as_str().unwrap_or(""), "get_weather")?;
            equal(calls[0]["function"]["arguments"].as_str().unwrap_or(""), r#"{"city":"sim"}"#)?;
        }
        "errors" => {
            // It asks again by itself after a 429, for minutes: only the 401 is asked for.
            match client.chat().create(asked("sim-error-401")).await {
                Ok(_) => return Err("no error".into()),
                Err(error) if error.to_string().contains("the simulated model answers 401") => (),
                Err(error) => return Err(error.into()),
            }
        }
        "abort" => {
            let mut stream = client.chat().create_stream(asked("sim-500x20")).await?;
            stream.next().await;
        }
        _ => unreachable!(),
    }
    Ok(None)
}

#[tokio::main]
async fn main() {
    let base = format!("{}/v1", std::env::var("BASE_URL").unwrap());
    let client = Client::with_config(OpenAIConfig::new().with_api_base(base).with_api_key("placeholder"));
    for feature in ["whole", "stream", "loop", "usage", "tools", "errors", "abort"] {
        let line = match run(&client, feature).await {
            Ok(None) => format!(r#"{{"feature":"{feature}","ok":true}}"#),
            Ok(Some([input, output])) => format!(r#"{{"feature":"{feature}","ok":true,"counted":[{input},{output}]}}"#),
            Err(error) => format!(r#"{{"feature":"{feature}","ok":false,"detail":{}}}"#, json!(error.to_string())),
        };
        println!("{line}");
        let mut answer = String::new();
        tokio::task::spawn_blocking(move || stdin().read_line(&mut answer)).await.unwrap().unwrap();
    }
}
