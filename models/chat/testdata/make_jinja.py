# Renders the templates of jinja.json anew by Python's jinja2 in transformers' settings (trim_blocks,
# lstrip_blocks, immutable sandbox, loop controls, its own tojson). Add a case by adding an object
# with a "template" to the file. Run: python3 make_jinja.py jinja.json
import json, sys, datetime
import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.ext import Extension
from jinja2 import nodes
class Gen(Extension):
    tags={"generation"}
    def parse(self, parser):
        lineno=next(parser.stream).lineno
        body=parser.parse_statements(["name:endgeneration"],drop_needle=True)
        return nodes.CallBlock(self.call_method("_g",[]),[],[],body).set_lineno(lineno)
    def _g(self, caller): return caller()
env=ImmutableSandboxedEnvironment(trim_blocks=True,lstrip_blocks=True,extensions=[Gen,loopcontrols])
def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
def raise_exception(m): raise jinja2.exceptions.TemplateError(m)
env.filters["tojson"]=tojson
env.globals["raise_exception"]=raise_exception
env.globals["strftime_now"]=lambda f: datetime.datetime(2026,7,4,12,30,15).strftime(f)
DATA={"messages":[{"role":"user","content":"  Hi <b>'x'</b> \"q\" é\n"},{"role":"assistant","content":None,"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"b":1,"a":[1.5,True,None,"ü\u0007"],"z":{}}}}]}],
 "tools":None,"documents":None,"add_generation_prompt":True,"bos_token":"<s>","eos_token":"</s>",
 "n":7,"x":2.5,"l":[3,1,2],"d":{"b":"B","a":"a","C":1},"s":"Hello, World","neg":-7,"nested":[[1,2],[3,4]],"people":[{"name":"bob","age":5},{"name":"Al","age":30},{"name":"cy","age":5}],"t":True,"nn":None,"e":"","el":[],"ed":{}, "uni":"ß ﬁ ǆ İ straße Ünï", "ml":"a\n\nb\r\nc"}
def run(src):
    try:
        return {"template":src,"text":env.from_string(src).render(**DATA)}
    except Exception as ex:
        return {"template":src,"raises":type(ex).__name__+": "+str(ex)}
if __name__=="__main__":
    path=sys.argv[1]
    srcs=[c["template"] for c in json.load(open(path))["cases"]]
    json.dump({"what":"templates rendered by jinja2 %s in the reference library's settings"%jinja2.__version__,"data":DATA,"cases":[run(s) for s in srcs]},open(path,"w"),ensure_ascii=False,indent=0)
