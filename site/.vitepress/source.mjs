// What the site takes from the Markdown of the repository. The Markdown is that which a forge shows: it has no front matter, and its links are
// relative to its files.
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs'
import { dirname, join, posix, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..')
export const repository = 'https://github.com/bowline-mcp/bowline'

// version is the tag that the site is built from, or none.
export const version = process.env.SITE_VERSION ?? ''

// excluded are the folders whose Markdown is no page.
export const excluded = readdirSync(root, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && entry.name !== 'docs')
  .map((entry) => `${entry.name}/**`)

// A README is the first page of its folder.
export const pageOf = (file) => file.replace(/(^|\/)README\.md$/, '$1index.md')
export const fileOf = (page) => page.replace(/(^|\/)index\.md$/, '$1README.md')

// slug makes the anchor of a heading as GitHub does.
export const slug = (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-')

export const read = (file) => readFileSync(join(root, file), 'utf8')

const isPage = (file) => file.endsWith('.md') && (file.startsWith('docs/') || !file.includes('/'))

// targetOf returns the file or folder of the repository that a link of a file leads to, or nothing for a link to elsewhere.
function targetOf(file, href) {
  if (/^([a-z][a-z0-9+.-]*:|#|\/\/)/i.test(href)) return undefined
  const target = posix.normalize(posix.join(posix.dirname(file), decodeURIComponent(href.split('#', 1)[0]))).replace(/\/$/, '')
  if (target.startsWith('..') || !existsSync(join(root, target))) throw new Error(`${file}: the link ${href} leads to nothing`)
  return target
}

const isFolder = (target) => statSync(join(root, target)).isDirectory()

// A host of files sends pictures as what they are. What a browser would download, such as a Go file, is there as text; so nothing that walks
// the repository takes it for a Go file, either.
export const shownOf = (target) => (/\.(png|svg|txt)$/.test(target) ? target : `${target}.txt`)

// linked are the files that pages lead to and that are no pages.
export const linked = new Set()

// relink returns where a link of a file leads to on the site: to a page, to a file, or to a folder of the repository.
export function relink(file, href) {
  const target = targetOf(file, href)
  if (target === undefined) return href
  if (isPage(target)) return `/${pageOf(target)}${/#.*$/.exec(href)?.[0] ?? ''}`
  if (isFolder(target)) return `${repository}/tree/${version || 'main'}/${target}`
  linked.add(target)
  return `/${shownOf(target)}`
}

// picture says that the Markdown of a file shows a picture. The page has one that Vite has named.
function picture(file, src) {
  const target = targetOf(file, src)
  if (target !== undefined) linked.add(target)
}

// markdown returns the Markdown of a page, in which links to folders lead to the repository, and those to files to what shows them.
export const markdown = (file) =>
  read(file).replace(/\]\(([^()\s]+)\)/g, (whole, href) => {
    if (/^([a-z][a-z0-9+.-]*:|#|\/\/)/i.test(href)) return whole
    const [path] = href.split('#', 1)
    const target = posix.join(posix.dirname(file), path)
    if (!existsSync(join(root, target)) || isPage(target)) return whole
    return isFolder(target) ? `](${relink(file, href)})` : `](${shownOf(path)})`
  })

// relinked makes links of pages lead to pages of the site.
export function relinked(md) {
  md.core.ruler.push('relink', (state) => {
    const file = fileOf(state.env.relativePath)
    const each = (tokens) => {
      for (const token of tokens) {
        if (token.type === 'link_open') token.attrSet('href', relink(file, token.attrGet('href')))
        if (token.type === 'image') picture(file, token.attrGet('src'))
        if (token.type.startsWith('html_')) {
          for (const [, src] of token.content.matchAll(/\b(?:src|srcset)="([\w-]+\/[^"]*)"/g)) picture(file, src)
          token.content = token.content.replace(/\b(src|srcset)="(?=[\w-]+\/)/g, '$1="./') // as Vite wants it
        }
        if (token.children) each(token.children)
      }
    }
    each(state.tokens)
  })
}

// diagrams makes diagrams of the blocks that are Mermaid. Without a script they stay text.
export function diagrams(md) {
  const fence = md.renderer.rules.fence
  md.renderer.rules.fence = (tokens, index, ...rest) => {
    const block = fence(tokens, index, ...rest)
    if (tokens[index].info.trim() !== 'mermaid') return block
    return `<Diagram source="${encodeURIComponent(tokens[index].content)}">${block}</Diagram>`
  }
}

const link = /\[([^\]]+)\]\(([^)\s]+)\)/g

// sections are the headings of docs/README.md, each with the pages that its text leads to.
export function sections() {
  const seen = new Set()
  return read('docs/README.md')
    .split(/^##+ /m)
    .slice(1)
    .map((section) => ({
      text: section.split('\n', 1)[0],
      items: [...section.matchAll(link)]
        .map(([, text, href]) => ({ text: capital(text.replaceAll('`', '').replace(/\s+/g, ' ')), link: relink('docs/README.md', href) }))
        .filter(({ link }) => /^\/docs\/.*\.md$/.test(link) && !seen.has(link) && seen.add(link)),
    }))
    .filter((section) => section.items.length > 0)
}

const capital = (text) => text[0].toUpperCase() + text.slice(1)

// about returns the title of a file, and the first sentence of its text.
export function about(file) {
  const text = read(file).replace(/<!--[\s\S]*?-->/g, '').replace(/^```[\s\S]*?^```/gm, '')
  const title = text.match(/^# (.*)$/m)
  if (!title) throw new Error(`${file} has no title`)
  const paragraphs = text.slice(title.index + title[0].length).split(/\n\s*\n/).map((p) => p.trim().replace(/\s*\n\s*/g, ' '))
  const prose = paragraphs.find((p) => /^[\p{L}`[*"]/u.test(p) && !/^(Date|Status):/.test(p)) ?? ''
  const plain = prose.replace(link, '$1').replaceAll('**', '')
  return { title: title[1].replaceAll('`', ''), sentence: (plain.match(/^.*?[.?](?=\s|$)/) ?? [plain])[0] }
}

// files lists the Markdown of all pages.
export function files() {
  const docs = readdirSync(join(root, 'docs'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.md'))
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)).replaceAll('\\', '/'))
  return [...readdirSync(root).filter((name) => name.endsWith('.md')), ...docs].sort()
}
