// Prints xgrammar's masks along answers, one a line: hexadecimal words of 32 ids, or an error. Standard input is what maskdiff.go writes.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { pathToFileURL } from "node:url";

// The package says that it is an ES module and is not one: it is run as what it is.
const file = process.argv[2];
const module = { exports: {} };
new Function("module", "exports", "require", "__filename", "__dirname", readFileSync(file, "utf8"))(
  module, module.exports, createRequire(pathToFileURL(file)), file, dirname(file));
const { TokenizerInfo, GrammarCompiler, GrammarMatcher } = module.exports;
const { vocabulary, end, cases } = JSON.parse(readFileSync(0, "utf8"));
const info = await TokenizerInfo.createTokenizerInfo(vocabulary, "byte_level", false, vocabulary.length, [end]);
const compiler = await GrammarCompiler.createGrammarCompiler(info);
for (const c of cases) {
  try {
    const compiled = await compiler.compileJSONSchema(c.schema, c.spaced, -1, [", ", ": "], true);
    const matcher = await GrammarMatcher.createGrammarMatcher(compiled);
    const masks = [];
    for (const id of c.ids) {
      masks.push([...(await matcher.getNextTokenBitmask())].map((w) => (w >>> 0).toString(16)).join(","));
      if (!matcher.acceptToken(id)) {
        masks.push("refused");
        break;
      }
    }
    console.log(JSON.stringify({ masks }));
    matcher.dispose();
    compiled.dispose();
  } catch (e) {
    console.log(JSON.stringify({ error: String(e) }));
  }
}
